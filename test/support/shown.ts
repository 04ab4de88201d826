import { type CliResult, type HereOrApart, projectFolder, runCommand } from "./cli.js";

/** Carries out a command line; what it said and how it ended, as one text for a snapshot. */
export async function shownCli(args: readonly string[], folder: string, options: HereOrApart = {}): Promise<string> {
  return showResult(await runCommand(args, options), folder);
}

/** Exit code, stdout and stderr, with what differs between machines and runs replaced by placeholders. */
export function showResult({ code, signal, stdout, stderr }: CliResult, folder: string): string {
  const said = (stream: string, text: string): string =>
    text === "" ? "" : `--- ${stream}\n${placeheld(text, folder)}`;
  return `exit ${code ?? signal}\n${said("stdout", stdout)}${said("stderr", stderr)}`;
}

function placeheld(text: string, folder: string): string {
  return text
    .replaceAll(folder, "<folder>")
    .replaceAll(projectFolder.replace(/\/$/, ""), "<project>")
    .replaceAll(/^\[(?:\d{4}-\d\d-\d\d )?\d\d:\d\d:\d\d\]/gm, "[<time>]")
    .replaceAll(/"time":"[^"]+"/g, '"time":"<time>"')
    .replaceAll(/\b[0-9a-f]{64}\b/g, "<sha256>")
    .replaceAll(/sha256 [0-9a-f]{12}…/g, "sha256 <12 digits>…")
    .replaceAll(/-[0-9a-f]{12}\b/g, "-<12 digits>")
    .replaceAll(/"writer":"[^"]+"/g, '"writer":"<writer>"')
    .replaceAll(/ in \d+(\.\d)? s \([\d.]+( [kM])? rows\/s\)/g, " in <seconds> s (<rate> rows/s)")
    .replaceAll(/"seconds":[\d.]+,"rows_per_second":\d+/g, '"seconds":<seconds>,"rows_per_second":<rate>')
    .replaceAll(/"engine_busy":[\d.]+/g, '"engine_busy":<share>')
    .replaceAll(/"stage_seconds":\{[^}]+\}/g, '"stage_seconds":{<seconds by stage>}')
    .replaceAll(/ +$/gm, (blanks) => "·".repeat(blanks.length));
}
