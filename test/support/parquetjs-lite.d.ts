/** The little that tests use of it; the package has no types. */
declare module "parquetjs-lite" {
  export interface ParquetFieldOptions {
    readonly type: "BOOLEAN" | "INT_16" | "INT_32" | "INT_64" | "INT64" | "FLOAT" | "DOUBLE" | "UTF8";
    readonly optional?: boolean;
    readonly statistics?: false;
    readonly compression?: "UNCOMPRESSED" | "GZIP" | "SNAPPY";
  }
  export class ParquetSchema {
    constructor(fields: Readonly<Record<string, ParquetFieldOptions>>);
    readonly fieldList: readonly { readonly name: string }[];
  }
  export class ParquetWriter {
    static openFile(
      schema: ParquetSchema,
      path: string,
      options?: { readonly rowGroupSize: number; readonly pageSize: number; readonly useDataPageV2: boolean },
    ): Promise<ParquetWriter>;
    appendRow(row: Readonly<Record<string, unknown>>): Promise<void>;
    close(): Promise<void>;
  }
}
