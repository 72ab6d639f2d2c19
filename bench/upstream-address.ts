import * as z from 'zod';

/** The address at which a subject reaches the fixture. */
const UPSTREAM_ADDRESS = z.discriminatedUnion('kind', [
  z.object({ kind: z.literal('http'), url: z.url() }),
  z.object({
    kind: z.literal('stdio'),
    command: z.string(),
    args: z.array(z.string()),
    isolation: z.enum(['shared', 'session']),
  }),
]);

export type UpstreamAddress = z.infer<typeof UPSTREAM_ADDRESS>;

/** Parses the address on the command line of our own subjects. @throws {z.ZodError} */
export function parseUpstreamAddress(text: string | undefined): UpstreamAddress {
  return UPSTREAM_ADDRESS.parse(JSON.parse(text ?? 'null'));
}
