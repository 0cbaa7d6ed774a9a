"""Errors of requests, for HTTP and gRPC alike."""

# TF Serving's status codes and the HTTP statuses that it gives them; the last three
# exist in HTTP only; `GRPC_CODE` has their codes in gRPC.
HTTP_STATUS = {
    "INVALID_ARGUMENT": 400,
    "NOT_FOUND": 404,
    "DEADLINE_EXCEEDED": 504,
    "FAILED_PRECONDITION": 412,
    "ABORTED": 409,
    "RESOURCE_EXHAUSTED": 429,
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
    """A request that is not answered with a result.

    Args:
        code: a key of `HTTP_STATUS`.
        message: the reason, for the caller.
        retry_after: seconds after which to try again, or None.
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
    """The error of a request whose content is wrong."""
    return RequestError("INVALID_ARGUMENT", message)
