import { writeFileSync } from 'node:fs';

import { jsonSchema } from '../config/schema/schema.ts';
import { ownUser, writeFault } from '../store/disk/path-fault.ts';
import { CliError, EXIT } from './operator/cli-error.ts';
import { print } from './operator/output.ts';

/** Returns the JSON Schema of the config file, as it is published. */
export function schemaText(): string {
  return `${JSON.stringify(jsonSchema(), null, 2)}\n`;
}

/** Prints the JSON Schema of the config file, or writes it to a file. Returns the exit code. */
export function schema({ write }: { readonly write: string | undefined }): number {
  if (write === undefined) print(schemaText());
  else writeSchema(write);
  return 0;
}

function writeSchema(path: string): void {
  try {
    writeFileSync(path, schemaText());
  } catch (thrown) {
    const fault = writeFault(thrown, 'its directory does not exist') ?? String(thrown);
    throw new CliError(
      EXIT.failed,
      `--write: ${path} cannot be written: ${fault}. Name a file that ${ownUser()} can write`,
      thrown,
    );
  }
}
