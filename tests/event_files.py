"""Reads TensorBoard event files, from the definitions of the formats alone.

usage: event_files.py FILE... (prints one JSON object an event)

TFRecord: https://www.tensorflow.org/tutorials/load_data/tfrecord; protobuf's wire format:
https://protobuf.dev/programming-guides/encoding; messages: tensorboard/compat/proto/{event,summary,tensor}.proto.
"""
import json
import struct
import sys


def crc32c(data):
    """CRC-32C, bit by bit: RFC 3720, appendix B.4."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def masked_crc32c(data):
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def records(raw):
    """The data of each TFRecord; checks both checksums."""
    at = 0
    while at < len(raw):
        length, length_crc = struct.unpack_from("<QI", raw, at)
        assert masked_crc32c(raw[at:at + 8]) == length_crc, f"offset {at}: checksum of the length"
        data = raw[at + 12:at + 12 + length]
        assert len(data) == length, f"offset {at}: cut off"
        data_crc, = struct.unpack_from("<I", raw, at + 12 + length)
        assert masked_crc32c(data) == data_crc, f"offset {at}: checksum of the data"
        yield data
        at += 16 + length


def varint(raw, at):
    value = shift = 0
    while True:
        value |= (raw[at] & 0x7F) << shift
        shift += 7
        at += 1
        if not raw[at - 1] & 0x80:
            return value, at


def fields(raw):
    """field number -> its values: integers, or bytes for the other wire types."""
    out, at = {}, 0
    while at < len(raw):
        key, at = varint(raw, at)
        if key & 7 == 0:
            value, at = varint(raw, at)
        else:
            size, at = varint(raw, at) if key & 7 == 2 else ({1: 8, 5: 4}[key & 7], at)
            value, at = raw[at:at + size], at + size
            assert len(value) == size, "a field is cut off"
        out.setdefault(key >> 3, []).append(value)
    return out


def read_event(raw):
    event = fields(raw)
    out = {"wall_time": struct.unpack("<d", event[1][0])[0], "step": event[2][0]}
    if 3 in event:
        out["file_version"] = event[3][0].decode()
    if 7 in event:
        out["session_status"] = fields(event[7][0])[1][0]
    if 5 in event:
        value, = fields(event[5][0])[1]
        value = fields(value)
        out["tag"] = value[1][0].decode()
        if 2 in value:
            out["value"] = struct.unpack("<f", value[2][0])[0]
        if 8 in value:
            tensor, metadata = fields(value[8][0]), fields(value[9][0])
            assert tensor[1] == [7], "DT_STRING"
            assert tensor[2] == [b""], "a scalar"
            assert fields(metadata[1][0])[1] == [b"text"], "the plugin"
            assert metadata[4] == [2], "DATA_CLASS_TENSOR"
            out["text"] = tensor[8][0].decode()
    return out


def read_events(path):
    with open(path, "rb") as file:
        return [read_event(record) for record in records(file.read())]


if __name__ == "__main__":
    assert crc32c(b"123456789") == 0xE3069283
    for name in sys.argv[1:]:
        for found in read_events(name):
            print(json.dumps(found))
