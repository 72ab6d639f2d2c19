import { writeFileSync } from 'node:fs';

import { jsonSchema } from '../config/schema.ts';

/** Where the published copy is. */
export const SCHEMA_FILE = new URL('../../config/linkspan.schema.json', import.meta.url);

export function schemaText(): string {
  return `${JSON.stringify(jsonSchema(), null, 2)}\n`;
}

/** Prints the JSON Schema of the config file, or writes the published copy anew. Returns the exit code. */
export function schema({ write }: { readonly write: boolean }): number {
  if (write) writeFileSync(SCHEMA_FILE, schemaText());
  else process.stdout.write(schemaText());
  return 0;
}
