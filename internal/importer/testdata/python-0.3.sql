BEGIN TRANSACTION;
CREATE TABLE push_notification_configs (
	task_id VARCHAR(36) NOT NULL,
	config_id VARCHAR(255) NOT NULL,
	config_data BLOB NOT NULL,
	PRIMARY KEY (task_id, config_id)
);
INSERT INTO "push_notification_configs" VALUES('0f6b6e0c-27d5-4f4c-9d3e-1f2b3c4d5e02','hook',X'7B2261757468656E7469636174696F6E223A7B2263726564656E7469616C73223A2263726564222C22736368656D6573223A5B22426561726572225D7D2C226964223A22686F6F6B222C22746F6B656E223A22736563726574222C2275726C223A2268747470733A2F2F686F6F6B732E6578616D706C652E6F72672F6132613F6B3D31227D');
INSERT INTO "push_notification_configs" VALUES('0f6b6e0c-27d5-4f4c-9d3e-1f2b3c4d5e01','hook',X'7B2261757468656E7469636174696F6E223A6E756C6C2C226964223A22686F6F6B222C22746F6B656E223A6E756C6C2C2275726C223A2268747470733A2F2F686F6F6B732E6578616D706C652E6F72672F656E646564227D');
CREATE TABLE tasks (
	id VARCHAR(36) NOT NULL,
	context_id VARCHAR(36) NOT NULL,
	kind VARCHAR(16) NOT NULL,
	status JSON NOT NULL,
	artifacts JSON,
	history JSON,
	metadata JSON,
	PRIMARY KEY (id)
);
INSERT INTO "tasks" VALUES('0f6b6e0c-27d5-4f4c-9d3e-1f2b3c4d5e01','c-1','task','{"message": {"contextId": null, "extensions": null, "kind": "message", "messageId": "m-4", "metadata": null, "parts": [{"kind": "text", "metadata": null, "text": "Done"}], "referenceTaskIds": null, "role": "agent", "taskId": null}, "state": "completed", "timestamp": "2025-03-04T05:06:01.123456+00:00"}','[{"artifactId": "plan", "description": "The plan", "extensions": null, "metadata": {"v": 2}, "name": "Plan", "parts": [{"kind": "text", "metadata": null, "text": "Day 1: the Colosseum. "}, {"kind": "text", "metadata": null, "text": "Day 2: home."}]}, {"artifactId": "ticket", "description": null, "extensions": ["https://example.org/x"], "metadata": null, "name": null, "parts": [{"file": {"bytes": "aGVsbG8=", "mimeType": "text/plain", "name": "t.txt"}, "kind": "file", "metadata": null}]}]','[{"contextId": "c-1", "extensions": null, "kind": "message", "messageId": "m-1", "metadata": null, "parts": [{"kind": "text", "metadata": null, "text": "A trip to Rome"}, {"data": {"nights": 2}, "kind": "data", "metadata": null}], "referenceTaskIds": ["a", "b"], "role": "user", "taskId": "0f6b6e0c-27d5-4f4c-9d3e-1f2b3c4d5e01"}, {"contextId": null, "extensions": null, "kind": "message", "messageId": "m-2", "metadata": null, "parts": [{"kind": "text", "metadata": null, "text": "By train?"}], "referenceTaskIds": null, "role": "agent", "taskId": null}, {"contextId": null, "extensions": null, "kind": "message", "messageId": "m-3", "metadata": null, "parts": [{"kind": "text", "metadata": {"sure": true}, "text": "Yes"}, {"file": {"mimeType": "image/png", "name": "map.png", "uri": "https://example.org/map.png"}, "kind": "file", "metadata": null}], "referenceTaskIds": null, "role": "user", "taskId": null}]','{"ticket": 7, "price": 1.5}');
INSERT INTO "tasks" VALUES('0f6b6e0c-27d5-4f4c-9d3e-1f2b3c4d5e02','c-1','task','{"message": {"contextId": null, "extensions": null, "kind": "message", "messageId": "m-6", "metadata": null, "parts": [{"kind": "text", "metadata": null, "text": "Where to?"}], "referenceTaskIds": null, "role": "agent", "taskId": null}, "state": "input-required", "timestamp": "2025-03-04T05:06:02.123456+00:00"}','null','[{"contextId": null, "extensions": null, "kind": "message", "messageId": "m-5", "metadata": null, "parts": [{"kind": "text", "metadata": null, "text": "Another trip"}], "referenceTaskIds": null, "role": "user", "taskId": null}]','null');
INSERT INTO "tasks" VALUES('0f6b6e0c-27d5-4f4c-9d3e-1f2b3c4d5e03','c-2','task','{"message": null, "state": "working", "timestamp": "2025-03-04T05:06:03.123456+00:00"}','null','[{"contextId": null, "extensions": null, "kind": "message", "messageId": "m-7", "metadata": null, "parts": [{"kind": "text", "metadata": null, "text": "Still running"}], "referenceTaskIds": null, "role": "user", "taskId": null}]','null');
INSERT INTO "tasks" VALUES('ticket-4711','c-3','task','{"message": null, "state": "failed", "timestamp": "2025-03-04T05:06:04.123456+00:00"}','null','[{"contextId": null, "extensions": null, "kind": "message", "messageId": "m-8", "metadata": null, "parts": [{"kind": "text", "metadata": null, "text": "An id that is not a UUID"}], "referenceTaskIds": null, "role": "user", "taskId": null}]','null');
INSERT INTO "tasks" VALUES('0f6b6e0c-27d5-4f4c-9d3e-1f2b3c4d5e05','c-3','task','{"message": null, "state": "unknown", "timestamp": null}','null','null','null');
CREATE INDEX ix_tasks_id ON tasks (id);
COMMIT;
