import type { TreesState } from "../engine/port.js";

/** What computes a model's trees, as reports say it; null: it has none, or too few rows came to compile them for. */
export function treesText(state: TreesState): string | null {
  return state.kind === "none" ? null : state.kind === "compiled" ? "compiled" : `onnxruntime: ${state.reason}`;
}
