import assert from 'node:assert/strict';
import { test } from 'node:test';
import { tellingLine } from '../../../src/upstream/stdio/telling-line.ts';
import { quote } from '../../support/test-name.ts';

const NODE_CRASH = `node:internal/modules/run_main:107
    triggerUncaughtException(
    ^

Error: boom
    at Object.<anonymous> (/srv/x.js:1:7)
    at node:internal/main/run_main_module:33:47

Node.js v24.21.0
`;

const NPM_404 = `npm error code E404
npm error 404 Not Found - GET https://registry.npmjs.org/@a%2fb
npm error 404
npm error 404  The requested resource '@a/b@*' could not be found or you do not have permission to access it.
npm error 404
npm error 404 Note that you can also install from a
npm error 404 tarball, folder, http url, or git url.
npm error A complete log of this run can be found in: /root/.npm/_logs/2026-11-24T20_18_57_932Z-debug-0.log
`;

const OLD_NPM = `npm ERR! code ENOTFOUND
npm ERR! syscall getaddrinfo
npm ERR! errno ENOTFOUND
npm ERR! network request to https://registry.npmjs.org/a failed, reason: getaddrinfo ENOTFOUND registry.npmjs.org

npm ERR! A complete log of this run can be found in:
npm ERR!     /root/.npm/_logs/2023-01-05T10_00_00_000Z-debug-0.log
`;

const NODE_VALUE = `/srv/x.js:3
throw Object.assign(config, {
^

{ missing: 'DATABASE_URL' }

Node.js v24.21.0
`;

const ZOD = `ZodError: [
  {
    "code": "invalid_type",
    "path": ["token"],
    "message": "Required"
  }
]
    at parse (/srv/zod.js:1:1)
`;

const JAVA = `Exception in thread "main" java.lang.IllegalStateException: no port
	at a.Main.main(Main.java:3)
	... 3 more
`;

const UV = `  × No solution found when resolving tool dependencies:
  ╰─▶ Because nope was not found in the package registry and you require
      nope, we can conclude that your requirements are unsatisfiable.
`;

for (const [what, text, telling] of [
  ['npm without the package', NPM_404, 'npm error E404: 404 Not Found - GET https://registry.npmjs.org/@a%2fb'],
  [
    'npm without the network',
    OLD_NPM,
    'npm error ENOTFOUND: network request to https://registry.npmjs.org/a failed, reason: getaddrinfo ENOTFOUND registry.npmjs.org',
  ],
  [
    'npm without a code',
    'npm error could not determine executable to run\nnpm error A complete log of this run can be found in: /x.log\n',
    'npm error: could not determine executable to run',
  ],
  ['a value that Node threw', NODE_VALUE, "{ missing: 'DATABASE_URL' }"],
  ['an error that is printed over several lines', ZOD, 'ZodError: "message": "Required"'],
  ['an error with members', "Error: no token\n    at x (/srv/x.js:1:1) {\n  code: 'X'\n})\n", 'Error: no token'],
  ['Java', JAVA, 'Exception in thread "main" java.lang.IllegalStateException: no port'],
  [
    '.NET',
    'Unhandled exception. System.Exception: no port\n   at A.Main() in /a.cs:line 3\n',
    'Unhandled exception. System.Exception: no port',
  ],
  [
    'Go',
    'panic: no port\n\ngoroutine 1 [running]:\nmain.main()\n\t/srv/x.go:5 +0x1d\nexit status 2\n',
    'panic: no port',
  ],
  [
    'Rust',
    "thread 'main' panicked at src/main.rs:2:5:\nno port\nnote: run with `RUST_BACKTRACE=1` environment variable to display a backtrace\n",
    'no port',
  ],
  [
    'Docker',
    "docker: Error response from daemon: no such image.\n\nRun 'docker run --help' for more information\n",
    'docker: Error response from daemon: no such image.',
  ],
  [
    'argparse',
    'usage: x [-h] --db DB\nx: error: the following arguments are required: --db\n',
    'x: error: the following arguments are required: --db',
  ],
  ['uv', UV, '╰─▶ Because nope was not found in the package registry and you require'],
  ['brackets alone', '{\n})\n];\n', undefined],
  ['a crash of Node', NODE_CRASH, 'Error: boom'],
  [
    'a code of Node',
    "Error [ERR_MODULE_NOT_FOUND]: Cannot find 'x'\n  at y\n}\n",
    "Error [ERR_MODULE_NOT_FOUND]: Cannot find 'x'",
  ],
  ['Python', 'Traceback (most recent call last):\n  File "x"\nlib.ModuleError: no x\n', 'lib.ModuleError: no x'],
  [
    'Python without a message',
    'Traceback (most recent call last):\n  File "x"\nKeyboardInterrupt\n',
    'KeyboardInterrupt',
  ],
  ['a log', '[ERROR] cannot bind\nbye\n', '[ERROR] cannot bind'],
  ['no error', 'one\ntwo\n', 'two'],
] as const) {
  // N-83
  test(`the telling line of ${what} is ${telling === undefined ? 'none' : quote(telling, 40)}`, () => {
    const lines = text.split('\n').filter((line) => line.trim() !== '');
    assert.equal(tellingLine(lines), telling);
  });
}
