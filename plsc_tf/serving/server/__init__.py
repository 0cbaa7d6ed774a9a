"""The server: receives requests over HTTP and gRPC and runs the model in batches."""
