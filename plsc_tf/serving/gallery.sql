CREATE TABLE IF NOT EXISTS about (
    dim INTEGER NOT NULL CHECK (typeof(dim) = 'integer' AND dim BETWEEN 1 AND 1e9),
    model TEXT NOT NULL CHECK (typeof(model) = 'text')
);
CREATE TABLE IF NOT EXISTS people (
    -- Never reused: a search may still hold the number of a person who was removed.
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    -- There is a copy of it for each face when a gallery is read. A character has at
    -- most four bytes, and length() ends at a zero byte.
    name TEXT UNIQUE NOT NULL
        CHECK (typeof(name) = 'text' AND length(CAST(name AS BLOB)) <= 1024)
);
CREATE TABLE IF NOT EXISTS faces (
    person INTEGER NOT NULL, embedding BLOB NOT NULL, checksum INTEGER
);
CREATE INDEX IF NOT EXISTS faces_of_person ON faces (person);
