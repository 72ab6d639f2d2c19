import { writeFileSync } from 'node:fs';

import { jsonSchema } from '../config/schema/schema.ts';
import { print } from './operator/output.ts';

/** Returns the JSON Schema of the config file, as it is published. */
export function schemaText(): string {
  return `${JSON.stringify(jsonSchema(), null, 2)}\n`;
}

/** Prints the JSON Schema of the config file, or writes it to a file. Returns the exit code. */
export function schema({ write }: { readonly write: string | undefined }): number {
  if (write === undefined) print(schemaText());
  else writeFileSync(write, schemaText());
  return 0;
}
