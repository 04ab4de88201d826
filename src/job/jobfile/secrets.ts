/** Whether a key is where a model server is: its path or query may have a secret. */
export function isServerPlace(path: readonly (string | number)[]): boolean {
  return /^(model|challenger)\.server\.(url|path)\b/.test(path.join("."));
}

const fileReference = /^\$\{file:([^}\0]+)\}$/;

/** The path in `${file:PATH}`: the value is what that file holds, each time that it is needed. undefined: it is given. */
export function secretFile(value: string): string | undefined {
  return fileReference.exec(value)?.[1];
}

/** Removes user and password of URLs from a text: any text may contain `postgres://user:secret@db/x`. */
export function hideCredentials(text: string): string {
  return text
    .replaceAll(/(?<!\b(?:abfss|wasbs))(:\/\/)[^\s"'`]*@/g, "$1***@")
    .replaceAll(/([?&](?:ssl)?password=)[^\s"'`&]*/gi, "$1***");
}

/** A path without its query, which may have a secret. */
export function withoutQuery(path: string): string {
  return path.replace(/\?.*$/s, "?***");
}
