import { expect } from "vitest";
import type { CliResult } from "./cli.js";
import { lastJson } from "./nights.js";
import { type PromptServer, type PromptServerOptions, startPromptServer } from "./prompt-server.js";
import {
  filesTarget,
  rightRejects,
  rightRows,
  type TicketJob,
  ticketJob,
  type TicketJobOptions,
  type Tickets,
  ticketServer,
} from "./prompt-torture.js";

/** A job whose rows are asked in batches, and its server. */
export interface BatchJob extends AsyncDisposable {
  readonly server: PromptServer;
  readonly job: TicketJob;
  readonly tickets: Tickets;
  /** Runs it in this process. */
  run(...args: readonly string[]): Promise<CliResult>;
  /** Requires that each ticket has its answer or its reject, that each was paid for once, and that the client knows it. */
  requireRight(last: CliResult): Promise<void>;
}

export interface BatchJobOptions extends Partial<Omit<TicketJobOptions, "server">> {
  readonly mock?: PromptServerOptions;
}

/** Starts a mock server, and writes a job of tickets for it. */
export async function batchJob({ mock = {}, ...options }: BatchJobOptions = {}): Promise<BatchJob> {
  const server = await startPromptServer({ ...ticketServer, ...mock });
  const { tickets = { rows: 60, every: 60 } } = options;
  const job = await ticketJob({
    targetIn: filesTarget,
    concurrency: 4,
    commitRows: 30,
    ...options,
    tickets,
    server,
    ofServer: { transport: "batch", ...options.ofServer },
  });
  return {
    server,
    job,
    tickets,
    run: (...args) => job.here("run", "--no-progress", "--json", ...args),
    async requireRight(last) {
      expect(last.code, last.stderr).toBe(0);
      expect(await job.target.rows()).toEqual(rightRows(tickets));
      expect(await job.target.rejects()).toEqual(rightRejects(tickets));
      const { billed, billed_again: again } = await server.books();
      const { requests: answers, prompt_tokens, cached_tokens, completion_tokens } = billed;
      expect(lastJson(last)).toMatchObject({
        spending: { run: { answers, prompt_tokens, cached_tokens, completion_tokens } },
      });
      expect(again.requests).toBe(0);
    },
    async [Symbol.asyncDispose]() {
      await job[Symbol.asyncDispose]();
      await server[Symbol.asyncDispose]();
    },
  };
}
