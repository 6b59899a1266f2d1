// Node's fs under `memlith run`: the synchronous and the promises interface, on a matching file and on a plain one
// beside it. Each step is done to both, and both have to be equal. Node calls statx, copy_file_range, close and more by
// their numbers.
//
//   node node_fs.js FOLDER SEED STEPS      (memlith run --match '*.kept')
'use strict';
const assert = require('assert');
const fs = require('fs');
const path = require('path');

const [folder, seed, steps] = [process.argv[2], Number(process.argv[3]), Number(process.argv[4])];
const both = ['data.kept', 'data.plain'].map((name) => path.join(folder, name));
const [kept, plain] = both;

// splitmix32
let state = seed >>> 0;
function random(bound) {
  state = (state + 0x9e3779b9) >>> 0;
  let x = state;
  x = Math.imul(x ^ (x >>> 16), 0x21f0aaad);
  x = Math.imul(x ^ (x >>> 15), 0x735a2d97);
  return ((x ^ (x >>> 15)) >>> 0) % bound;
}
const bytes = (count) => Buffer.from(Array.from({length: count}, () => random(256)));

function descriptors() {
  return fs.readdirSync('/proc/self/fd').filter((each) => Number(each) < 256).length;
}

// Each step gets the path and the same random values for both files.
const sync = {
  writeFile: (made) => (file) => fs.writeFileSync(file, made.data),
  appendFile: (made) => (file) => fs.appendFileSync(file, made.data),
  truncate: (made) => (file) => fs.truncateSync(file, made.at),
  stat: () => (file) => [fs.statSync(file).size, fs.lstatSync(file).size],
  readFile: () => (file) => fs.readFileSync(file),
  write: (made) => (file) => {
    const fd = fs.openSync(file, 'r+');
    const done = [fs.writeSync(fd, made.data, 0, made.data.length, made.at), fs.fstatSync(fd).size];
    fs.writevSync(fd, [made.data, made.data], made.at + 10);
    if (made.at % 3 === 0) fs.fsyncSync(fd);
    if (made.at % 5 === 0) fs.fdatasyncSync(fd);
    fs.closeSync(fd);
    return done;
  },
  read: (made) => (file) => {
    const fd = fs.openSync(file, 'r');
    const found = Buffer.alloc(made.data.length);
    const got = fs.readSync(fd, found, 0, found.length, made.at);
    fs.closeSync(fd);
    return [got, found];
  },
  copyFile: () => (file) => {
    fs.copyFileSync(file, file + '.copy' + path.extname(file));
    const found = fs.readFileSync(file + '.copy' + path.extname(file));
    fs.renameSync(file + '.copy' + path.extname(file), file);
    return found;
  },
  replace: (made) => (file) => {
    const fresh = path.join(folder, 'fresh' + path.extname(file));
    fs.writeFileSync(fresh, made.data, {flush: true});
    fs.renameSync(fresh, file);
  },
  unlink: (made) => (file) => {
    fs.unlinkSync(file);
    fs.writeFileSync(file, made.data);
    return fs.existsSync(file);
  },
};

const promised = {
  writeFile: (made) => (file) => fs.promises.writeFile(file, made.data),
  appendFile: (made) => (file) => fs.promises.appendFile(file, made.data),
  stat: () => async (file) => (await fs.promises.stat(file)).size,
  readFile: () => (file) => fs.promises.readFile(file),
  handle: (made) => async (file) => {
    const handle = await fs.promises.open(file, 'r+');
    await handle.write(made.data, 0, made.data.length, made.at);
    await handle.truncate(made.at + 5);
    if (made.at % 2 === 0) await handle.sync();
    const size = (await handle.stat()).size;
    await handle.close();
    return size;
  },
  stream: (made) => (file) => new Promise((resolve, reject) => {
    const stream = fs.createWriteStream(file, {flags: 'a'});
    stream.on('error', reject);
    stream.on('close', () => resolve(fs.statSync(file).size));
    stream.write(made.data);
    stream.end(made.data);
  }),
  parallel: (made) => async (file) => {
    const handle = await fs.promises.open(file, 'r+');
    const part = made.data.subarray(0, 4096);
    await Promise.all([0, 1, 2, 3].map((i) => handle.write(part, 0, part.length, i * 4096)));
    await handle.datasync();
    await handle.close();
  },
};

async function main() {
  for (const file of both) fs.writeFileSync(file, '');
  await fs.promises.stat(kept);  // the threads of the pool are there, and their descriptors
  const before = descriptors();
  for (let step = 0; step < steps; ++step) {
    const group = random(2) === 0 ? sync : promised;
    const name = Object.keys(group)[random(Object.keys(group).length)];
    const made = {data: bytes(random(4) === 0 ? random(9000) : random(200)), at: random(30000)};
    const found = [];
    for (const file of both) found.push(await group[name](made)(file));
    assert.deepStrictEqual(found[0], found[1], `step ${step}, ${name}`);
    const same = fs.readFileSync(kept).equals(fs.readFileSync(plain));
    assert(same, `step ${step}, ${name}: the files differ`);
  }
  assert.strictEqual(descriptors(), before, 'descriptors are left open');
  console.log(`${steps} steps, no difference`);
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
