"""The server: HTTP and gRPC in, batches to the model, answers out."""
