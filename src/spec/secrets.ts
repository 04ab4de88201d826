/** Keys whose values are never shown, whatever is wrong with them. */
const secretKeys: ReadonlySet<string> = new Set(["output.postgres.url", "report.on_success", "report.on_failure"]);

export function isSecretKey(path: readonly (string | number)[]): boolean {
  return secretKeys.has(path.join("."));
}

/** The text without what stands before the host of a URL: `postgres://user:secret@db/x` may have got anywhere. */
export function hideCredentials(text: string): string {
  return text.replaceAll(/(:\/\/)[^\s"'`]*@/g, "$1***@").replaceAll(/([?&](?:ssl)?password=)[^\s"'`&]*/gi, "$1***");
}
