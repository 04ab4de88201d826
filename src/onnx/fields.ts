import { BinaryReader, BinaryWriter, WireType } from "@bufbuild/protobuf/wire";

/** Writes a message, or bytes, with its tag. */
export function writeMessage(writer: BinaryWriter, field: number, content: Uint8Array): BinaryWriter {
  return writer.tag(field, WireType.LengthDelimited).bytes(content);
}

export function writeText(writer: BinaryWriter, field: number, text: string): BinaryWriter {
  return writer.tag(field, WireType.LengthDelimited).string(text);
}

/** A field of a serialized message. */
interface Field {
  readonly field: number;
  /** The field with its tag. */
  readonly raw: Uint8Array;
  /** The content of a message, a text or bytes. */
  readonly content: Uint8Array | undefined;
}

/** The fields of a message in the order of the message, repeated ones too. */
export function* fieldsIn(message: Uint8Array): Generator<Field, void, undefined> {
  const reader = new BinaryReader(message);
  while (reader.pos < reader.len) {
    const start = reader.pos;
    const [field, wire] = reader.tag();
    let content: Uint8Array | undefined;
    if (wire === WireType.LengthDelimited) {
      content = reader.bytes();
    } else {
      reader.skip(wire, field);
    }
    yield { field, raw: message.subarray(start, reader.pos), content };
  }
}

/** The contents of each occurrence of a field. */
export function* messagesIn(message: Uint8Array, wanted: number): Generator<Uint8Array, void, undefined> {
  for (const { field, content } of fieldsIn(message)) {
    if (field === wanted && content !== undefined) {
      yield content;
    }
  }
}

/** A text field; "" where it is not set. @throws TypeError where it is not UTF-8 */
export function textIn(message: Uint8Array, wanted: number): string {
  let last: Uint8Array = new Uint8Array();
  for (const content of messagesIn(message, wanted)) {
    last = content;
  }
  return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(last);
}
