// A members' community: sign in, accept, ask, publish and read, leave; new terms; a ban (A-2, L-2, S-2, S-3, S-5, A-6).
import assert from 'node:assert/strict'
import { connect, leave, operator, person, refused, stored, until } from './support.mjs'

const http = process.argv[2].replace(/^ws/, 'http')
const topic = name => `kukuri:${name.repeat(64)}`
const [alice, mallory] = [person(), person()]

async function call(method, path, { token, body } = {}) {
  const headers = { ...(body && { 'content-type': 'application/json' }), ...(token && { authorization: `Bearer ${token}` }) }
  const answer = await fetch(http + path, { method, headers, body: body && JSON.stringify(body) })
  const text = await answer.text()
  return { status: answer.status, json: text ? JSON.parse(text) : null, code: text && JSON.parse(text).error?.code }
}

async function signIn(who) {
  const { challenge } = (await call('POST', '/v1/auth/challenge', { body: { pubkey: who.key } })).json
  const tags = [['relay', process.argv[2]], ['challenge', challenge]]
  const answer = who.sign({ kind: 22242, created_at: Math.floor(Date.now() / 1000), tags, content: '' })
  return call('POST', '/v1/auth/verify', { body: { auth_event_json: answer } })
}

async function authenticated(who) {
  const relay = await connect()
  // Whatever is asked first makes sure that the challenge has come.
  await closed(relay, topic('0'))
  assert.equal(await relay.auth(async template => who.sign(template)), '')
  return relay
}

// The reason for which a REQ is closed.
function closed(relay, name) {
  return new Promise((resolve, reject) => {
    relay.subscribe([{ '#t': [name] }], { oneose: () => reject(new Error('it was answered')), onclose: resolve })
  })
}

// Two policies, and an operator who publishes them.
for (const type of ['terms', 'privacy']) {
  for (const locale of ['ja', 'en']) await operator('policy', 'draft', type, '1', '--locale', locale, '--file', `# ${type}\n${locale}`)
  await operator('policy', 'publish', type, '1')
}

// Nobody reads without a key, nor with a key that has no account.
const stranger = await connect()
assert.match(await closed(stranger, topic('a')), /^auth-required: /)
assert.match(await closed(await authenticated(mallory), topic('a')), /^restricted: account required http/)

// Sign in, and accept both policies.
const verified = await signIn(alice)
assert.deepEqual([verified.status, verified.json.token_type, verified.json.pubkey], [200, 'Bearer', alice.key])
const token = verified.json.access_token
const request = topic_id => call('POST', '/v1/topic-subscription-requests', { token, body: { topic_id } })
await until('the first consent is missing', async () => (await request(topic('a'))).code === 'CONSENT_REQUIRED')
const consents = (await call('GET', '/v1/policies/current')).json.items
assert.equal(consents.length, 4)
for (const type of ['terms', 'privacy']) {
  assert.equal((await request(topic('a'))).status, 428)
  const { version, content_hash } = consents.find(text => text.type === type && text.locale === 'en')
  const accepted = await call('POST', '/v1/consents', { token, body: { accept: [{ type, version, content_hash }] } })
  assert.equal(accepted.status, 200, JSON.stringify(accepted))
}

// Ask for a topic; the operator approves.
const asked = await request(topic('a'))
assert.deepEqual([asked.status, asked.json.status], [200, 'pending'], JSON.stringify(asked))
const relay = await authenticated(alice)
assert.match(await closed(relay, topic('a')), /^restricted: subscription required/)
await operator('request', 'approve', asked.json.request_id, '--note', 'welcome')
const own = (await call('GET', '/v1/topic-subscription-requests', { token })).json.items
assert.deepEqual(own.map(one => [one.status, one.review_note]), [['active', 'welcome']])
const note = alice.note('tea', [['t', topic('a')]])
await until('the topic is taken in', async () => (await relay.publish(note).catch(() => null)) === '')
assert.deepEqual(await stored(relay, { '#t': [topic('a')] }), [note.id])
await refused(relay, alice.note('tea', [['t', topic('b')]]), /^restricted: subscription required/)
assert.equal((await request(topic('b'))).code, 'QUOTA_EXCEEDED')

// The last subscriber leaves: what is live ends, and the topic stops.
const ended = new Promise(resolve => relay.subscribe([{ '#t': [topic('a')] }], { onclose: resolve }))
assert.equal((await call('DELETE', `/v1/topic-subscriptions/${topic('a')}`, { token })).status, 200)
assert.match(await ended, /^restricted: subscription required/)
await refused(relay, alice.note('more', [['t', topic('a')]]), /^restricted: subscription required/)
await until('the topic stops', async () => !/yes|by members/.test(await operator('topic', 'list')) || !(await operator('topic', 'list')).includes(topic('a')))

// New terms: asked for again, and refused until they are accepted.
await stored(relay, { '#t': ['kukuri:global'] })
await operator('policy', 'draft', 'terms', '2', '--locale', 'en', '--file', '# New terms')
await operator('policy', 'publish', 'terms', '2')
await until('the new terms hold', async () => (await request(topic('b'))).code === 'CONSENT_REQUIRED')
assert.match(await closed(relay, 'kukuri:global'), /^restricted: consent required http/)

// A ban closes connections.
relay.onnotice = notice => assert.match(notice, /^blocked: .*spam/)
const gone = new Promise(resolve => (relay.onclose = resolve))
await operator('account', 'ban', alice.key, '--reason', 'spam')
await gone
assert.equal((await call('GET', '/v1/me', { token })).code, 'BANNED')
leave()
