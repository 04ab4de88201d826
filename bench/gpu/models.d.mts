/** The bytes of an ONNX model: `input` float32 [N, tokens] -> `score` float32 [N, 1]. */
export function encoder(size: {
  readonly tokens: number;
  readonly width: number;
  readonly layers: number;
}): Uint8Array;

/** The bytes of an ONNX model that takes a lot of memory: `x` float32 [N, 1] -> `y` float32 [N, 1]. */
export function hungry(size: { readonly width: number; readonly tensors: number }): Uint8Array;

/** The line on which the predictions of `hungry` lie. */
export function hungryLine(size: { readonly tensors: number }): { readonly slope: number; readonly offset: number };
