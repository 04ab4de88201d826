import { readFooter } from "../../formats/parquet/footer.js";
import type { ParquetOptions } from "../../formats/parquet/duckdb.js";
import type { GoldenReader } from "../../scoring/context.js";

/** The key of a Parquet file's metadata that names the model which computed its predictions. */
const modelKey = "infer_batch.model_sha256";

/** Opens a reader of a file of rows with known predictions. */
export async function openGoldenReader(options: ParquetOptions): Promise<GoldenReader> {
  const { openParquetDecoder } = await import("../../formats/parquet/decoder.js");
  const decoder = openParquetDecoder(options);
  return {
    decoder,
    modelSha256: async (file) => (await readFooter(file)).metadata.get(modelKey),
    [Symbol.asyncDispose]: () => decoder[Symbol.asyncDispose](),
  };
}
