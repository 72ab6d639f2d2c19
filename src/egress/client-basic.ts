import type { ClientAuth } from 'oauth4webapi';

/** Returns text in the form encoding. Letters, digits and `-_.*` stay. */
function formEncoded(text: string): string {
  return new URLSearchParams([['', text]]).toString().slice(1);
}

/**
 * Returns HTTP Basic credentials of a client. Those of `oauth4webapi` encode `-` and `_` too, which most ids and secrets have; some servers do not
 * decode them.
 *
 * @see https://www.rfc-editor.org/rfc/rfc6749#section-2.3.1
 */
export function clientBasic(secret: string): ClientAuth {
  return (_server, { client_id: id }, _body, headers) => {
    const credentials = Buffer.from(`${formEncoded(id)}:${formEncoded(secret)}`).toString('base64');
    headers.set('authorization', `Basic ${credentials}`);
  };
}
