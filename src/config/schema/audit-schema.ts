import { z } from 'zod';
import { AUDIT_SYNCS, AUDITED_ARGUMENTS } from '../values/config.ts';
import { KEY_COMMAND, randomKey } from './random-key.ts';
import { otlpEndpoint, otlpHeaders } from './otlp-schema.ts';
import { count, flag, oneOf, size, text } from './scalars.ts';
import { clientTls } from './tls-schema.ts';

const MAX_KEYS = 8;
const LOGS_PATH = 'v1/logs';

/** Settings of the audit log: everything under `gateway.audit`. */
export const auditSchema = z
  .strictObject({
    file: text()
      .optional()
      .describe(
        'File that records are appended to; relative to this file. Each replica needs a file of its own; workers have one together.',
      ),
    stdout: flag()
      .prefault(false)
      .describe('Writes the records to stdout instead of a file. Not for `linkspan stdio`.'),
    otlp: z
      .strictObject({
        endpoint: otlpEndpoint(LOGS_PATH, '"headers"').describe(
          'URL of an OTLP receiver over HTTP with JSON; /v1/logs is added to a URL without a path.',
        ),
        headers: otlpHeaders()
          .prefault({})
          .describe('Headers of each export, such as `{Authorization: "Bearer ${file:/run/secrets/otlp}"}`.'),
        tls: clientTls.optional().describe('Certificates, for an https URL.'),
      })
      .refine(({ endpoint, tls }) => tls === undefined || endpoint.startsWith('https:'), {
        error: '"tls" is for an https URL; remove it, or write https://',
      })
      .optional()
      .describe('Sends the records to a receiver of OpenTelemetry logs instead of a file.'),
    maxSize: size('64KiB', '1024GiB')
      .prefault('64MiB')
      .describe(
        'A file that reaches this size is renamed to `<file>.<number of its first record>`. With `otlp`, a record from which the ' +
          'log can be verified follows.',
      ),
    maxFiles: count(1, 100_000).prefault(16).describe('Renamed files that are kept. The oldest one is removed.'),
    arguments: oneOf(AUDITED_ARGUMENTS)
      .prefault('digest')
      .describe(
        'What is recorded of the arguments of calls: `none`, a keyed `digest` of their text, or `full`. The last is also their text, ' +
          'with the values of members such as `password` and `token` taken out.',
      ),
    required: flag()
      .prefault(false)
      .describe(
        'Records each call before it is sent as well, and refuses a call that cannot be recorded. Otherwise records that ' +
          'cannot be written are dropped and counted.',
      ),
    sync: oneOf(AUDIT_SYNCS)
      .prefault('second')
      .describe(
        'When written records are forced to the disk: after each `write` (with `required`: before the call is sent), once a ' +
          '`second`, or `never`. A power failure loses later ones; the death of the process does not.',
      ),
    queue: size('64KiB', '1GiB')
      .prefault('8MiB')
      .describe('Records that wait for being written, together. With workers, as much again waits in them.'),
    recordSize: size('4KiB', '1MiB')
      .prefault('16KiB')
      .describe('One record, at most `queue`. Names and arguments in it are cut.'),
    chainKeys: z
      .array(randomKey, { error: 'expected a list of keys' })
      .max(MAX_KEYS, { error: `expected at most ${MAX_KEYS} keys` })
      .prefault([])
      .describe(
        `Secrets that chain the records: ${KEY_COMMAND}. The first one signs, all of them verify. ` +
          'Default: the file audit.key in `stateDir`, which the first start makes.',
      ),
  })
  .refine(({ file, stdout, otlp }) => [file !== undefined, stdout, otlp !== undefined].filter(Boolean).length === 1, {
    error: 'expected one of "file", "stdout: true" and "otlp"',
  })
  // A larger record would never find room.
  .refine(({ queue, recordSize }) => recordSize <= queue, {
    path: ['recordSize'],
    error: 'expected at most the size of "queue"',
  });
