"""actor.py BROKER: does what lines of stdin ask of a cluster, one JSON answer a line.

["create", topic, partitions, settings], ["partitions", topic, count], ["drop", topic], ["expire", topic, partition, offset],
["send", topic, partition, [[key, value, [header, hex], ...], ...], codec], ["transaction", topic, partition, [[key, value], ...], end]: "commit", "abort", or a name for ["end", name] to commit it,
["avro", registry, topic, schema, records]: sends records as Confluent's serializer writes them; integers may be texts,
["raw", topic, [hex, ...]]: sends values, ["fill", topic, start, count], ["leader", topic]: of partition 0,
["read", topic]: all committed records as [partition, offset, key, value, time], ["group", group, topic]: its offsets, ["forget", group].
"""
import json
import sys
import uuid

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition, ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

broker = {"bootstrap.servers": sys.argv[1]}
admin = AdminClient(broker)
producers = {}


def producer(codec, **more):
    if codec not in producers:
        batch = {"linger.ms": 20, "topic.metadata.refresh.interval.ms": 100, "compression.type": codec, "enable.idempotence": True}
        producers[codec] = Producer({**broker, **batch, **more})
    return producers[codec]


def put(to, topic, partition, records):
    to.list_topics(topic)
    for key, value, *headers in records:
        for tries in range(100):
            try:
                to.produce(topic, key=key, value=value, partition=partition, headers=[
                    (name, None if text is None else bytes.fromhex(text)) for name, text in headers])
                break
            except KafkaException:  # its partition is new, or the queue is full
                to.poll(0.1)
        to.poll(0)


def wait(futures):
    for future in futures.values():
        future.result()


def create(topic, partitions, settings):
    wait(admin.create_topics([NewTopic(topic, partitions, config=settings)]))


def partitions(topic, count):
    wait(admin.create_partitions([NewPartitions(topic, count)]))


def drop(topic):
    wait(admin.delete_topics([topic]))


def expire(topic, partition, offset):
    wait(admin.delete_records([TopicPartition(topic, partition, offset)]))


def send(topic, partition, records, codec="none"):
    put(producer(codec), topic, partition, records)
    producer(codec).flush()


def avro(registry, topic, schema, records):
    from confluent_kafka.schema_registry import SchemaRegistryClient
    from confluent_kafka.schema_registry.avro import AvroSerializer
    from confluent_kafka.serialization import MessageField, SerializationContext
    serialize = AvroSerializer(SchemaRegistryClient({"url": registry, "basic.auth.user.info": "alice:registry-password"}), json.dumps(schema))
    raw(topic, [serialize({**record, "id": int(record["id"])}, SerializationContext(topic, MessageField.VALUE)).hex() for record in records])


def raw(topic, values):
    put(producer("none"), topic, 0, [(None, bytes.fromhex(value)) for value in values])
    producer("none").flush()


def fill(topic, start, count):
    """Sends so many records, whose ids go on from `start`, to all partitions in turn."""
    to = producer("lz4")
    partitions = len(to.list_topics(topic).topics[topic].partitions)
    for id in range(start, start + count):
        value = '{"id": %d, "x": %r, "name": "n%d", "day": "2026-11-30", "ok": true}' % (id, id / 4, id)
        while True:
            try:
                to.produce(topic, key=f"k{id}", value=value, partition=id % partitions)
                break
            except BufferError:
                to.poll(0.1)
        to.poll(0)
    return to.flush()


def leader(topic):
    return admin.list_topics(topic, timeout=10).topics[topic].partitions[0].leader


def transaction(topic, partition, records, end):
    writer = Producer({**broker, "transactional.id": str(uuid.uuid4()), "linger.ms": 20})
    writer.init_transactions()
    writer.begin_transaction()
    put(writer, topic, partition, records)
    writer.flush()
    if end == "abort":
        writer.abort_transaction()
    elif end == "commit":
        writer.commit_transaction()
    else:
        producers[end] = writer  # it stays open


def end(name):
    producers.pop(name).commit_transaction()


def read(topic):
    consumer = Consumer({**broker, "group.id": str(uuid.uuid4()), "isolation.level": "read_committed",
                         "enable.partition.eof": True, "auto.offset.reset": "earliest"})
    parts = consumer.list_topics(topic).topics[topic].partitions
    consumer.assign([TopicPartition(topic, part, 0) for part in parts])
    ended, records = set(), []
    while len(ended) < len(parts):
        for message in consumer.consume(1000, 1):
            if message.error():
                ended.add(message.partition())
            else:
                key, value = [None if part is None else part.decode() for part in (message.key(), message.value())]
                records.append([message.partition(), message.offset(), key, value, message.timestamp()[1]])
    consumer.close()
    return records


def group(name, topic):
    asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(name)])
    return {str(part.partition): part.offset for part in asked[name].result().topic_partitions if part.topic == topic}


def forget(group):
    wait(admin.delete_consumer_groups([group]))


print(json.dumps("ready"), flush=True)
for line in sys.stdin:
    act, *args = json.loads(line)
    try:
        print(json.dumps([True, globals()[act](*args)]), flush=True)
    except Exception as error:
        print(json.dumps([False, str(error)]), flush=True)
