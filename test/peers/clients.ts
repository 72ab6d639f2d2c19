import type { ConnectOptions, Mode, PeerClient, Place } from './clients/client.ts';
import { connectPython } from './clients/driven.ts';
import { connectTypescript1, connectTypescript2 } from './clients/sdk.ts';

const CONNECTORS = {
  python1: (place: Place, options: ConnectOptions) => connectPython('mcp1', place, options),
  python2: (place: Place, options: ConnectOptions) => connectPython('mcp2', place, options),
  fastmcp4: (place: Place, options: ConnectOptions) => connectPython('fastmcp', place, options),
  typescript1: connectTypescript1,
  typescript2: connectTypescript2,
} as const;

export type ClientName = keyof typeof CONNECTORS;

/** A client in one era. */
export interface ClientCell {
  readonly client: ClientName;
  readonly mode: Mode;
}

export const CLIENT_CELLS: readonly ClientCell[] = [
  { client: 'python1', mode: 'legacy' },
  { client: 'python2', mode: 'legacy' },
  { client: 'python2', mode: 'modern' },
  { client: 'fastmcp4', mode: 'legacy' },
  { client: 'fastmcp4', mode: 'modern' },
  { client: 'typescript1', mode: 'legacy' },
  { client: 'typescript2', mode: 'legacy' },
  { client: 'typescript2', mode: 'modern' },
];

export function connectClient(
  { client, mode }: ClientCell,
  place: Place,
  declares: ConnectOptions['declares'],
): Promise<PeerClient> {
  return CONNECTORS[client](place, { mode, declares });
}
