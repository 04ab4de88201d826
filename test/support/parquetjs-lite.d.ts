/** The little that tests use of it; the package has no types. */
declare module "parquetjs-lite" {
  export interface ParquetFieldOptions {
    readonly type: "INT64" | "DOUBLE" | "UTF8";
    readonly optional?: boolean;
    readonly statistics?: false;
    readonly compression?: "GZIP" | "SNAPPY";
  }
  export class ParquetSchema {
    constructor(fields: Readonly<Record<string, ParquetFieldOptions>>);
    readonly fieldList: readonly { readonly name: string }[];
  }
  export class ParquetWriter {
    static openFile(schema: ParquetSchema, path: string): Promise<ParquetWriter>;
    appendRow(row: Readonly<Record<string, unknown>>): Promise<void>;
    close(): Promise<void>;
  }
}
