// After a crash a client comes back to everything that was acknowledged, and its subscription is there again.
import assert from 'node:assert/strict'
import { ask, connect, leave, pause, person, stored, subscribe } from './support.mjs'

const alice = person()
const [writer, reader] = [await connect({ enableReconnect: true }), await connect({ enableReconnect: true })]
writer.resubscribeBackoff = reader.resubscribeBackoff = [200]
const live = subscribe(reader, { authors: [alice.key] })
assert.deepEqual(await live.stored(), [])
const before = Array.from({ length: 20 }, (_, n) => alice.note(`${n}`))
for (const event of before) {
  assert.equal(await writer.publish(event), '')
  assert.equal((await live.next()).id, event.id)
}

await ask('kill')
while (writer.connected || reader.connected) await pause(50)
await ask('start')
while (!writer.connected || !reader.connected) await pause(50)

const found = await stored(await connect(), { authors: [alice.key] })
assert.deepEqual(found.sort(), before.map(event => event.id).sort())
// This client asks for what is newer than what it has seen.
const after = alice.sign({ kind: 1, content: 'after', created_at: before.at(-1).created_at + 1 })
assert.equal(await writer.publish(after), '')
assert.equal((await live.next()).id, after.id)
leave()
