"""An independent client of HDFS: hdfs-native, neither Hadoop's nor TensorFlow's.

python hdfs_client.py PORT look FOLDER      JSON object {file: [bytes, blake3]}
python hdfs_client.py PORT write FILE TEXT  writes a file
python hdfs_client.py PORT give FOLDER USER makes a folder, and USER its owner
"""

import json
import sys

from blake3 import blake3
from hdfs_native import Client
from hdfs_native.fsspec import HdfsFileSystem

port, command, path, *arguments = sys.argv[1:]
store = HdfsFileSystem("127.0.0.1", int(port))
if command == "write":
    with store.open(path, "wb") as file:
        file.write(arguments[0].encode())
elif command == "give":
    store.makedirs(path, exist_ok=True)
    Client(f"hdfs://127.0.0.1:{port}").set_owner(path, arguments[0])
elif command == "look":
    found = {}
    for file_path in store.find(path) if store.exists(path) else []:
        with store.open(file_path, "rb") as file:
            content = file.read()
        name = file_path.partition(path)[2].lstrip("/")
        found[name] = [len(content), blake3(content).hexdigest()]
    print(json.dumps(found))
