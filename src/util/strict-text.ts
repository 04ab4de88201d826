const decoder = new TextDecoder("utf-8", { fatal: true });

/** The text in bytes, without a byte order mark. Other decoders put U+FFFD in place of bytes that are no UTF-8. @throws TypeError */
export function strictText(bytes: Uint8Array): string {
  return decoder.decode(bytes);
}
