import type { RejectedRow } from "../../columnar/types.js";
import { pipeText } from "../../report/pipe-report.js";
import { summarizeRejects } from "../../report/rejects-text.js";
import { count } from "../../report/report.js";
import { runPipe } from "../../run/pipe.js";
import type { SafeIo } from "../io.js";
import type { JobOptions } from "../../app/reading/read-spec.js";
import { wantsColor } from "../colors.js";
import { createLog } from "../logger.js";
import { openPipe } from "../../app/pipe-context.js";
import { openRejectsFile } from "../rejects-file.js";
import { abortOnSignals } from "../signals.js";
import { openStdio, readerLeft } from "../stdio.js";

interface PipeOptions extends JobOptions {
  readonly rejects?: string;
  readonly quiet?: boolean;
  readonly logLevel: "debug" | "info" | "warn" | "error";
  readonly logFormat: "pretty" | "json";
}

/** Scores a stream from stdin to stdout. Everything else goes to stderr. */
export async function pipeCommand(spec: string, options: PipeOptions, io: SafeIo): Promise<void> {
  const { stderr } = io;
  using stop = abortOnSignals(io, options, {
    kept: "what was written so far has no end-of-stream marker",
    hint: "run the same command over the same input again",
  });
  using stdio = openStdio(stop.signal);
  const log = createLog(stderr, {
    level: options.quiet === true ? "error" : options.logLevel,
    format: options.logFormat,
    color: wantsColor(stderr.raw),
  });
  const rejected = summarizeRejects();
  try {
    await using file = options.rejects === undefined ? undefined : await openRejectsFile(options.rejects);
    const onRejected = async (rows: readonly RejectedRow[]): Promise<void> => {
      for (const row of rows) {
        rejected.add(row);
      }
      await (rows.length === 0 ? undefined : file?.write(rows));
    };
    log.info(pipeText(await runPipe(await openPipe(spec, options, { stdio, log, onRejected }))));
  } catch (error) {
    if (error !== readerLeft) {
      throw error;
    }
    log.info("the reader of stdout closed it: scoring stops");
  } finally {
    if (rejected.rows > 0) {
      log.warn([`${count(rejected.rows, "row")} rejected`, ...rejected.lines()].join("\n"));
    }
  }
}
