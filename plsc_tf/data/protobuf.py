"""Messages of protocol buffers: those of other programs, and those of strangers."""

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.internal.decoder import _DecodeVarint

# CPPTYPE_DOUBLE, CPPTYPE_FLOAT and CPPTYPE_STRING: values that are copied in one piece.
_QUICK = (5, 6, 9)


def message_class(messages: dict[str, str], package: str) -> type:
    """Returns the class of the last message; fields of 0 are written, as in proto2.

    Args:
        messages: `{message: "field number type, ..."}`; * marks repeated fields. A type
            is one of protobuf's, such as INT64, or another of the messages.
        package: the messages' package, which protobuf's errors name.
    """
    file = descriptor_pb2.FileDescriptorProto(
        name=f"{package}.proto", package=package, syntax="proto2"
    )
    kinds = descriptor_pb2.FieldDescriptorProto
    for name, fields in messages.items():
        message = file.message_type.add(name=name)
        for field_name, number, kind in map(str.split, fields.split(", ")):
            field = message.field.add(name=field_name, number=int(number))
            repeated, kind = kind.endswith("*"), kind.rstrip("*")
            field.label = kinds.LABEL_REPEATED if repeated else kinds.LABEL_OPTIONAL
            if kind in messages:
                field.type_name = f".{file.package}.{kind}"
                field.type = kinds.TYPE_MESSAGE
            else:
                field.type = kinds.Type.Value(f"TYPE_{kind}")
    pool = descriptor_pool.DescriptorPool()
    return message_factory.GetMessages([file], pool)[f"{file.package}.{name}"]


def has_few_fields(data: bytes, message: Any, most: int) -> bool:
    """Returns whether an encoded message has at most `most` fields, at any depth.

    While a message is parsed, Python's lock is held, and as objects, tiny fields take
    twenty times their bytes.

    Args:
        data: the encoded message.
        message: its descriptor.
        most: number of fields; a hundred bytes of packed integers count as one.

    Raises:
        DecodeError, IndexError: it is damaged.
    """
    count, parts = 0, [(0, len(data), message)]
    while parts:
        place, end, message = parts.pop()
        fields = message.fields_by_number
        while place < end:
            tag, place = _DecodeVarint(data, place)
            wire, field, size = tag & 7, fields.get(tag >> 3), 0
            if wire in (0, 2):
                size, place = _DecodeVarint(data, place)
            if wire == 2 and field is not None:
                if field.cpp_type == field.CPPTYPE_MESSAGE:
                    parts.append((place, place + size, field.message_type))
                elif field.cpp_type not in _QUICK:
                    count += size // 100
            count += 1
            if count > most:
                return False
            place += {1: 8, 2: size, 5: 4}.get(wire, 0)
    return True
