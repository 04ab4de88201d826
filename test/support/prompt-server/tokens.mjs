// How the mock server counts tokens: four bytes of UTF-8 are a token. A message has three more, an answer begins with three.
export function countTokens(text) {
  return Math.ceil(Buffer.byteLength(text) / 4);
}

export function promptTokens(messages) {
  return messages.reduce((sum, { content }) => sum + 3 + countTokens(textOf(content)), 3);
}

/** The text of a message's content, which may be divided into parts. */
export function textOf(content) {
  return Array.isArray(content) ? content.map(({ text = "" }) => text).join("") : String(content ?? "");
}
