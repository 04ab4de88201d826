import { bestEffort } from "../../util/best-effort.js";
import type { Ledger } from "../ledger.js";
import { addVersion, createDocument, readDocument } from "./control/documents.js";
import { hasControlTables } from "./control/schema.js";
import { lock } from "./locks.js";
import { retrying } from "./retry.js";
import type { RunTools } from "./run-tools.js";
import { transact } from "./transaction.js";

/** Opens the documents of runs: rows, of which a role that may only insert can add versions, and change none. */
export function openLedger(tools: RunTools): Ledger {
  const { control, retry, target } = tools;
  return {
    failure: "DATABASE",
    read: (runId, kind) =>
      retrying(`reading ${target}`, retry, () =>
        transact(tools, async (session) =>
          (await hasControlTables(session, control.schema))
            ? await readDocument(session, control, { runId, kind })
            : undefined,
        ),
      ),
    create: (runId, kind, value) =>
      retrying(`writing to ${target}`, retry, async (last) => {
        await tools.ensureControlTables(last); // a note on a run that is not planned yet may be the first row there
        return await transact(tools, (session) => createDocument(session, tools, { runId, kind, value }), { last });
      }),
    note: (runId, kind, change) =>
      bestEffort(() =>
        transact(tools, async (session) => {
          await lock(session, `${kind.name} ${runId}`);
          const next = change(await readDocument(session, control, { runId, kind }));
          if (next !== undefined) {
            await addVersion(session, tools, { runId, kind, value: next });
          }
        }),
      ),
  };
}
