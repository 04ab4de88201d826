import { shellWord } from "../../util/texts.js";
import { isInputFile } from "../../formats/by-format.js";

/** What to do about an argument too many in a command line, as a line of stderr; "": nothing is known. */
export function usageHint(args: readonly string[]): string {
  if (args[0] === "init" && args.some((arg, index) => isInputFile(arg) && args[index - 1] !== "--input")) {
    return `(${quoteThePattern})\n`;
  }
  const index = args.findIndex((arg, at) => arg === "--param" && args[at + 1]?.includes("=") === false);
  const [name, value] = index === -1 ? [] : args.slice(index + 1);
  return name === undefined || value === undefined ? "" : `(write --param ${shellWord(`${name}=${value}`)})\n`;
}

/** What to do where a shell has put the names of files in place of a pattern. */
export const quoteThePattern = "put the pattern of --input in quotes: --input 'data/*.parquet'";
