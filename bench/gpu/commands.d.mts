/** The variables that put CUDA's folder in front of the loader's path. */
export function cudaEnv(folder: string | undefined): Record<string, string>;

/** Makes a Python environment in CUDA's folder, and names it in INFER_BATCH_PYTHON. */
export function makePython(folder: string | undefined, version: string): void;
