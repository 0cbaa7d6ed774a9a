"""Request errors, for both HTTP and gRPC."""

# TF Serving's status codes and their HTTP statuses. The last three codes exist in HTTP
# only; `GRPC_CODE` maps them to gRPC codes.
HTTP_STATUS = {
    "INVALID_ARGUMENT": 400,
    "NOT_FOUND": 404,
    "DEADLINE_EXCEEDED": 504,
    "ABORTED": 409,
    "UNAVAILABLE": 503,
    "UNIMPLEMENTED": 501,
    "INTERNAL": 500,
    "TOO_LARGE": 413,
    "TOO_SLOW": 408,
    "NO_METHOD": 405,
}
GRPC_CODE = {
    "TOO_LARGE": "INVALID_ARGUMENT",
    "TOO_SLOW": "DEADLINE_EXCEEDED",
    "NO_METHOD": "UNIMPLEMENTED",
}


class RequestError(Exception):
    """A request cannot be answered with a result.

    Args:
        code: a key of `HTTP_STATUS`.
        message: the reason, sent to the client.
        retry_after: seconds after which the client should try again, or None.
    """

    def __init__(self, code: str, message: str, retry_after: int | None = None):
        super().__init__(message)
        self.code = code
        self.message = message
        self.retry_after = retry_after

    @property
    def status(self) -> int:
        """The HTTP status."""
        return HTTP_STATUS[self.code]

    @property
    def grpc_code(self) -> str:
        """The name of the gRPC status code."""
        return GRPC_CODE.get(self.code, self.code)


def invalid(message: str) -> RequestError:
    """Returns the error for a request with invalid content."""
    return RequestError("INVALID_ARGUMENT", message)
