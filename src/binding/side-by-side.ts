import { printable } from "../util/texts.js";
import type { ModelSignature, TensorSignature } from "../columnar/tensor.js";
import { showColumnType, type SourceColumn } from "../columnar/types.js";

const rowLimit = 40;

/** A model's signature and a shard's schema as two text columns: what a user compares when a binding fails. */
export function sideBySide(signature: ModelSignature, columns: readonly SourceColumn[], shard: string): string {
  const left = [
    "model inputs:",
    ...aligned(signature.inputs.map((tensor) => [tensor.name, showTensor(tensor)])),
    "model outputs:",
    ...aligned(signature.outputs.map((tensor) => [tensor.name, showTensor(tensor)])),
  ];
  const right = [
    `columns of ${printable(shard)}:`,
    ...aligned(columns.map((column) => [column.name, showColumnType(column)])),
  ];
  const shownLeft = capped(left);
  const shownRight = capped(right);
  const width = Math.max(...shownLeft.map((line) => line.length));
  const height = Math.max(shownLeft.length, shownRight.length);
  const lines: string[] = [];
  for (let row = 0; row < height; row += 1) {
    lines.push(`  ${(shownLeft[row] ?? "").padEnd(width)}   ${shownRight[row] ?? ""}`.trimEnd());
  }
  return lines.join("\n");
}

function aligned(pairs: readonly (readonly [string, string])[]): string[] {
  const shown = pairs.map(([name, type]) => [printable(name), printable(type)] as const);
  const width = Math.max(0, ...shown.map(([name]) => name.length));
  return shown.map(([name, type]) => `  ${name.padEnd(width)}  ${type}`);
}

function capped(lines: readonly string[]): string[] {
  return lines.length <= rowLimit
    ? [...lines]
    : [...lines.slice(0, rowLimit), `  … and ${lines.length - rowLimit} more`];
}

/** "float32 [N,30]". */
export function showTensor(tensor: TensorSignature): string {
  if (tensor.dtype === undefined) {
    return "sequence or map";
  }
  const dims = tensor.shape.map((dim, index) => (dim === null ? (index === 0 ? "N" : "?") : String(dim)));
  return `${tensor.dtype} [${dims.join(",")}]`;
}
