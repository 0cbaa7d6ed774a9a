"""Defines protocol buffer messages of other programs in short notation."""

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory


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
