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
    getSchema(): { readonly fieldList: readonly ParquetField[] };
    close(): Promise<void>;
  }
}
