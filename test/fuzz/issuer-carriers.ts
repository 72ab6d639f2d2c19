import { gzipSync } from 'node:zlib';
import type { Dice } from './dice.ts';

/** The text in a document that becomes the credentials and the body of the request. */
export const ECHO = '@ECHO@';

/** The bytes of one answer of an issuer, and the fate of its connection after them. */
export interface IssuerAnswer {
  readonly bytes: Buffer;
  /** `endless`: the bytes are followed by others until the client closes. `drips`: one byte follows from time to time. */
  readonly end: 'closes' | 'hangs' | 'drips' | 'endless';
}

/** Carries documents in answers that are all wrong in the same way, or right. */
export interface Carrier {
  readonly name: string;
  /** True if the document arrives whole, with status 200, as JSON. */
  readonly isRight: boolean;
  /** True if the client waits for its own timeout. */
  readonly isSlow: boolean;
  answer(text: string): IssuerAnswer;
}

const CRLF = '\r\n';
const BOMB_BYTES = 64 * 1_024 * 1_024;
/** Much when it is decompressed, and less than the bytes that the gateway reads. */
const bomb = gzipSync(Buffer.alloc(BOMB_BYTES, ' '));

function response(text: string, status: string, headers: readonly string[]): Buffer {
  const body = Buffer.from(text);
  const lines = [`HTTP/1.1 ${status}`, ...headers, `content-length: ${body.length}`, 'connection: close'];
  return Buffer.concat([Buffer.from(`${lines.join(CRLF)}${CRLF}${CRLF}`), body]);
}

const JSON_TYPE = 'content-type: application/json';

const closing = (make: (text: string) => Buffer | string): ((text: string) => IssuerAnswer) => {
  return (text) => ({ bytes: Buffer.from(make(text)), end: 'closes' });
};

/** The carrier that makes nothing wrong. */
export const RIGHT: Carrier = {
  name: 'whole',
  isRight: true,
  isSlow: false,
  answer: closing((text) => response(text, '200 OK', [JSON_TYPE])),
};

function wrong(name: string, answer: Carrier['answer'], isSlow = false): Carrier {
  return { name, isRight: false, isSlow, answer };
}

/** Returns a carrier whose client waits for its timeout. */
export function slowCarrier(dice: Dice): Carrier {
  const share = dice.one([0, 0.1, 0.5, 0.99]);
  const end = dice.one(['hangs' as const, 'drips' as const]);
  const answer = (text: string): IssuerAnswer => {
    const bytes = response(text, '200 OK', [JSON_TYPE]);
    return { bytes: bytes.subarray(0, Math.floor(bytes.length * share)), end };
  };
  return wrong(`${end} after ${share}`, answer, true);
}

const STATUSES = [
  '201 Created',
  '204 No Content',
  '206 Partial Content',
  '400 Bad Request',
  '401 Unauthorized',
  '403 Forbidden',
  '404 Not Found',
  '429 Too Many Requests',
  '500 Oops',
  '503 Busy',
  '999 Odd',
  '099 Odd',
  'two hundred',
];
const REDIRECTS = ['301 Moved', '302 Found', '303 See Other', '304 Not Modified', '307 Temporary', '308 Permanent'];
const TYPES = [
  'text/html',
  'application/x-www-form-urlencoded',
  'application/jwt',
  'application/json; charset=utf-16',
  'application/token-introspection+jwt',
  'multipart/form-data; boundary=x',
  '',
];
const CHALLENGES = [
  'Bearer',
  'Basic realm="x"',
  `Bearer ${'a="b", '.repeat(500)}`,
  `Bearer error="${'\\"'.repeat(1_000)}`,
  'a '.repeat(2_000),
  `Bearer resource_metadata="${ECHO}"`,
  `Bearer error_description="${'x'.repeat(3_000)}", error="invalid_client", scope=${','.repeat(1_000)}`,
];
const LENGTHS = ['1', '100000', '-1', '1e20', '0x10', '18446744073709551616', ''];
const CHUNKS = ['zz\r\n', '-1\r\n', 'ffffffffffffffff\r\n', '5;a=b\r\n{"a":\r\n', '\r\n'];

/** Returns a carrier that is wrong. @param other a URL that nothing may be requested from. */
export function wrongCarrier(dice: Dice, other: string): Carrier {
  switch (dice.below(9)) {
    case 0: {
      const [status, location] = [
        dice.one(REDIRECTS),
        dice.one([other, `//${new URL(other).host}/`, '/moved', '', '\\']),
      ];
      return wrong(
        `${status} to ${location}`,
        closing((text) => response(text, status, [`location: ${location}`, JSON_TYPE])),
      );
    }
    case 1: {
      const status = dice.one(STATUSES);
      return wrong(
        status,
        closing((text) => response(text, status, [JSON_TYPE])),
      );
    }
    case 2: {
      const [type, status] = [dice.one(TYPES), dice.one(['200 OK', '200 OK', '400 Bad Request'])];
      return wrong(
        `${status} as ${type}`,
        closing((text) => response(text, status, [`content-type: ${type}`])),
      );
    }
    case 3: {
      const [status, challenge] = [dice.one(['200 OK', '400 Bad Request', '401 Unauthorized']), dice.one(CHALLENGES)];
      const head = [JSON_TYPE, `www-authenticate: ${challenge}`];
      return wrong(
        `${status} with the challenge ${challenge.slice(0, 40)}`,
        closing((text) => response(text, status, head)),
      );
    }
    case 4: {
      const length = dice.one(LENGTHS);
      const answer = (text: string) =>
        `HTTP/1.1 200 OK${CRLF}${JSON_TYPE}${CRLF}content-length: ${length}`.concat(CRLF, CRLF, text);
      return wrong(`content-length ${length}`, closing(answer));
    }
    case 5: {
      const chunk = dice.one(CHUNKS);
      const head = `HTTP/1.1 200 OK${CRLF}${JSON_TYPE}${CRLF}transfer-encoding: chunked${CRLF}${CRLF}`;
      return wrong(
        `chunk ${JSON.stringify(chunk)}`,
        closing((text) => `${head}${chunk}${text}${CRLF}0${CRLF}${CRLF}`),
      );
    }
    case 6: {
      const thousandths = dice.below(1_000);
      const answer = closing((text) => {
        const bytes = response(text, '200 OK', [JSON_TYPE]);
        return bytes.subarray(0, Math.floor((bytes.length * thousandths) / 1_000));
      });
      return wrong(`cut after ${thousandths} ‰`, answer);
    }
    case 7: {
      const head = [`HTTP/1.1 200 OK`, JSON_TYPE, 'content-encoding: gzip', `content-length: ${bomb.length}`];
      const bytes = Buffer.concat([Buffer.from(`${head.join(CRLF)}${CRLF}${CRLF}`), bomb]);
      return wrong('compressed', () => ({ bytes, end: 'closes' }));
    }
    default: {
      const head = dice.one([
        'HTTP/1.1 200 OK\r\nx: ',
        `HTTP/1.1 200 OK\r\n${JSON_TYPE}\r\ncontent-length: 1000000000\r\n\r\n`,
        `HTTP/1.1 200 OK\r\n${JSON_TYPE}\r\n\r\n`,
        'HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 ',
        '',
      ]);
      return wrong(`endless after ${JSON.stringify(head)}`, () => ({ bytes: Buffer.from(head), end: 'endless' }));
    }
  }
}
