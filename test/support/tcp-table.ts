import { readFileSync } from 'node:fs';

/** A socket of IPv4 on this machine, as `/proc/net/tcp` has it. */
interface TcpSocket {
  readonly isListening: boolean;
  readonly localPort: number;
  readonly remotePort: number;
  /** The bytes that were received and not read; the connections that wait, if it listens. */
  readonly waiting: number;
}

function hex(text = ''): number {
  return Number.parseInt(text, 16);
}

/** Returns all sockets of IPv4 now. */
export function tcpSockets(): readonly TcpSocket[] {
  const [, ...lines] = readFileSync('/proc/net/tcp', 'utf8').trimEnd().split('\n');
  return lines.map((line) => {
    const [, local, remote, state, queues] = line.trim().split(/\s+/);
    return {
      isListening: state === '0A',
      localPort: hex(local?.split(':')[1]),
      remotePort: hex(remote?.split(':')[1]),
      waiting: hex(queues?.split(':')[1]),
    };
  });
}
