/** The little that tests use of it; the package has no types. */
declare module "parquetjs-lite" {
  export interface ParquetCursor {
    /** A record, or null at the end. int64 comes as bigint; every value of a dictionary-coded column as text. */
    next(): Promise<Record<string, unknown> | null>;
  }
  export interface ParquetField {
    readonly name: string;
    readonly primitiveType: string;
  }
  export class ParquetReader {
    static openFile(path: string): Promise<ParquetReader>;
    getCursor(): ParquetCursor;
    getSchema(): ParquetSchema;
    close(): Promise<void>;
  }
  export interface ParquetFieldOptions {
    readonly type: "INT64" | "DOUBLE" | "UTF8";
    readonly optional?: boolean;
    readonly statistics?: false;
    readonly compression?: "GZIP" | "SNAPPY";
  }
  export class ParquetSchema {
    constructor(fields: Readonly<Record<string, ParquetFieldOptions>>);
    readonly fieldList: readonly ParquetField[];
  }
  export class ParquetWriter {
    static openFile(schema: ParquetSchema, path: string): Promise<ParquetWriter>;
    appendRow(row: Readonly<Record<string, unknown>>): Promise<void>;
    close(): Promise<void>;
  }
}
