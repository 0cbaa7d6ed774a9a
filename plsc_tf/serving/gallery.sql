CREATE TABLE IF NOT EXISTS about (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS people (
    -- Never reused: a search may still hold the number of a person who was removed.
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT UNIQUE NOT NULL
);
CREATE TABLE IF NOT EXISTS faces (
    person INTEGER NOT NULL, embedding BLOB NOT NULL, checksum INTEGER
);
CREATE INDEX IF NOT EXISTS faces_of_person ON faces (person);
