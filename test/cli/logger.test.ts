import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { closeSync, constants, openSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { safeOutput } from "#src/cli/io.js";
import { createLog, type LogOptions } from "#src/cli/logger.js";
import { scratch } from "../support/job.js";

function logged(options: Partial<LogOptions>): string {
  let text = "";
  const raw = { write: (piece: string) => (text += piece) };
  const log = createLog(safeOutput(raw), { logLevel: "info", logFormat: "pretty", ...options });
  log.debug("read 3 shards");
  log.info("planned");
  log.warn('"late"');
  return text.replaceAll(/\d{4}-\d\d-\d\d/g, "DATE").replaceAll(/\d\d:\d\d:\d\d(\.\d{3}Z)?/g, "TIME");
}

test("a log shows messages from its level on, as lines or as JSON, and none that is quiet", () => {
  expect(logged({})).toBe('[DATE TIME] INFO: planned\n[DATE TIME] WARN: "late"\n');
  expect(logged({ logLevel: "debug" })).toMatch("[DATE TIME] DEBUG: read 3 shards\n");
  expect(logged({ logLevel: "warn", logFormat: "json" })).toBe(
    '{"level":"warn","time":"DATETTIME","msg":"\\"late\\""}\n',
  );
  expect(logged({ quiet: true, logLevel: "debug" })).toBe("");
});

test("a log waits for a pipe that is full, and loses nothing", async () => {
  const pipe = join(scratch.path, "pipe");
  const read = join(scratch.path, "read");
  execFileSync("mkfifo", [pipe]);
  const fd = openSync(pipe, constants.O_RDWR | constants.O_NONBLOCK);
  const reader = spawn("sh", ["-c", 'sleep 0.2; cat "$0" > "$1"', pipe, read]);
  const message = "x".repeat(300_000);
  createLog(
    { write: () => undefined, raw: { fd } as NodeJS.WriteStream & { fd: number } },
    { logLevel: "info", logFormat: "json" },
  ).info(message);
  closeSync(fd);
  await once(reader, "exit");
  expect(readFileSync(read, "utf8")).toMatch(`"msg":"${message}"}\n`);
});
