import { showTensor } from "../binding/signatures.js";
import type { ModelSignature } from "../columnar/tensor.js";
import { table } from "./table.js";

/** The findings of `infer-batch doctor` about the servers of a model. */
export interface ServerDiagnosis {
  readonly program: string;
  readonly model: string;
  readonly protocol: string;
  readonly servers: readonly DiagnosedServer[];
  /** undefined: no server answers. */
  readonly signature: ModelSignature | undefined;
  readonly measured: MeasuredServer | undefined;
}

export interface DiagnosedServer {
  readonly url: string;
  readonly state: "ready" | "fails";
  /** The version of the model, if the server names one; of a server that fails, why. */
  readonly found: string;
}

/** What a server does with blank rows. */
export interface MeasuredServer {
  readonly batches: readonly { readonly rows: number; readonly ms: number; readonly rowsPerSecond: number }[];
  readonly stopped: string | undefined;
  readonly bestRows: number;
  readonly inFlight: readonly { readonly inFlight: number; readonly rowsPerSecond: number }[];
  /** What the server itself has counted meanwhile, of a request on average; undefined: it counts nothing. */
  readonly counted:
    | { readonly queueMs: number; readonly computeMs: number; readonly requestsJoined: number }
    | undefined;
}

/** The findings as one line of JSON. */
export function serverDiagnosisJson({ program, signature, measured, ...found }: ServerDiagnosis): string {
  const batches = measured?.batches.map(({ rows, ms, rowsPerSecond }) => {
    return { rows, ms: tenths(ms), rows_per_second: Math.round(rowsPerSecond) };
  });
  const inFlight = measured?.inFlight.map(({ inFlight: requests, rowsPerSecond }) => {
    return { in_flight: requests, batch_size: measured.bestRows, rows_per_second: Math.round(rowsPerSecond) };
  });
  const stopped = measured?.stopped ?? null;
  const counted = measured?.counted;
  return JSON.stringify({
    version: program,
    ...found,
    signature: signature ?? null,
    batches: batches ?? [],
    batches_stopped: stopped,
    requests: inFlight ?? [],
    server_statistics:
      counted === undefined
        ? null
        : {
            queue_ms: tenths(counted.queueMs),
            compute_ms: tenths(counted.computeMs),
            requests_joined: tenths(counted.requestsJoined),
          },
  });
}

/** The findings as text. */
export function serverDiagnosisText(diagnosis: ServerDiagnosis): string {
  const { program, model, protocol, servers, signature, measured } = diagnosis;
  const tensors = signature === undefined ? [] : signatureLines(signature);
  return [
    `infer-batch ${program}`,
    `model ${model}, protocol ${protocol}`,
    "",
    ...table(servers.map(({ url, state, found }) => [url, state, found])),
    ...tensors,
    ...(measured === undefined ? [] : measuredLines(measured)),
    "",
  ].join("\n");
}

function signatureLines({ inputs, outputs }: ModelSignature): string[] {
  const rows = [
    ...inputs.map((one) => ["input", one.name, showTensor(one)]),
    ...outputs.map((one) => ["output", one.name, showTensor(one)]),
  ];
  return ["", ...table(rows)];
}

function measuredLines({ batches, stopped, bestRows, inFlight, counted }: MeasuredServer): string[] {
  const right = { right: [0, 1, 2] };
  const curve = batches.map(({ rows, ms, rowsPerSecond }) => [String(rows), String(tenths(ms)), whole(rowsPerSecond)]);
  const rates = inFlight.map(({ inFlight: requests, rowsPerSecond }) => [String(requests), whole(rowsPerSecond)]);
  return [
    "",
    "blank rows, one request at a time:",
    ...table([["rows", "ms", "rows/s"], ...curve], right),
    ...(stopped === undefined ? [] : [`  no more rows: ${stopped}`]),
    ...(rates.length === 0 ? [] : ["", `requests of ${bestRows} blank rows at once:`]),
    ...(rates.length === 0 ? [] : table([["in flight", "rows/s"], ...rates], right)),
    ...(counted === undefined ? [] : ["", countedLine(counted)]),
  ];
}

function countedLine({ queueMs, computeMs, requestsJoined }: NonNullable<MeasuredServer["counted"]>): string {
  return `the server's own statistics: a request waits ${tenths(queueMs)} ms and is computed in ${tenths(computeMs)} ms; an execution has ${tenths(requestsJoined)} requests`;
}

function whole(value: number): string {
  return Math.round(value).toLocaleString("en");
}

function tenths(value: number): number {
  return Math.round(value * 10) / 10;
}
