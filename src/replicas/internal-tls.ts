import { constants } from 'node:crypto';

/** TLS 1.3 with the keys of the ring alone; no certificates, no tickets. */
export const INTERNAL_TLS = {
  minVersion: 'TLSv1.3',
  maxVersion: 'TLSv1.3',
  secureOptions: constants.SSL_OP_NO_TICKET,
} as const;

/** The name and version of the protocol between replicas, which both sides agree on in the handshake (ALPN). */
export const CHANNEL_PROTOCOL = 'linkspan/1';
