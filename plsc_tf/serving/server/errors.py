"""Request errors, for both HTTP and gRPC."""

# TF Serving's status codes, which are gRPC's, and their HTTP statuses.
HTTP_STATUS = {
    "INVALID_ARGUMENT": 400,
    "UNAUTHENTICATED": 401,
    "PERMISSION_DENIED": 403,
    "NOT_FOUND": 404,
    "ABORTED": 409,
    "RESOURCE_EXHAUSTED": 429,
    "UNIMPLEMENTED": 501,
    "INTERNAL": 500,
    "UNAVAILABLE": 503,
    "DEADLINE_EXCEEDED": 504,
}


class RequestError(Exception):
    """A request cannot be answered with a result.

    Args:
        code: a key of `HTTP_STATUS`.
        message: the reason, sent to the client; cut after 500 characters.
        retry_after: seconds after which the client should try again, or None.
        status: HTTP status; None means that of the code.
    """

    def __init__(self, code: str, message: str, retry_after=None, status=None):
        # Headers may have bytes that are not UTF-8, which JSON cannot repeat.
        message = message[:500].encode(errors="backslashreplace").decode()
        self.message = message[:500]
        super().__init__(self.message)
        self.code, self.retry_after = code, retry_after
        self.status = status or HTTP_STATUS[code]


def too_large(message: str) -> RequestError:
    """Returns the error for a request with too much content."""
    return RequestError("INVALID_ARGUMENT", message, status=413)


def invalid(message: str) -> RequestError:
    """Returns the error for a request with invalid content."""
    return RequestError("INVALID_ARGUMENT", message)
