BEGIN TRANSACTION;
CREATE TABLE push_notification_configs (
	task_id VARCHAR(36) NOT NULL,
	config_id VARCHAR(255) NOT NULL,
	config_data BLOB NOT NULL,
	owner VARCHAR(255),
	protocol_version VARCHAR(16),
	PRIMARY KEY (task_id, config_id)
);
INSERT INTO "push_notification_configs" VALUES('1f6b6e0c-27d5-4f4c-9d3e-1f2b3c4d5e02','hook',X'7B0A2020226964223A2022686F6F6B222C0A2020227461736B4964223A202231663662366530632D323764352D346634632D396433652D316632623363346435653032222C0A20202275726C223A202268747470733A2F2F686F6F6B732E6578616D706C652E6F72672F613261222C0A202022746F6B656E223A2022736563726574222C0A20202261757468656E7469636174696F6E223A207B0A2020202022736368656D65223A2022426561726572222C0A202020202263726564656E7469616C73223A202263726564220A20207D0A7D','bob','1.0');
CREATE TABLE tasks (
	id VARCHAR(36) NOT NULL,
	context_id VARCHAR(36) NOT NULL,
	kind VARCHAR(16) NOT NULL,
	owner VARCHAR(255),
	last_updated DATETIME,
	status JSON NOT NULL,
	artifacts JSON,
	history JSON,
	protocol_version VARCHAR(16),
	metadata JSON,
	PRIMARY KEY (id)
);
INSERT INTO "tasks" VALUES('1f6b6e0c-27d5-4f4c-9d3e-1f2b3c4d5e01','c-1','task','ann','2026-03-04 05:06:01.123456','{"state": "TASK_STATE_COMPLETED", "message": {"messageId": "m-4", "role": "ROLE_AGENT", "parts": [{"text": "Done"}]}, "timestamp": "2026-03-04T05:06:01.123456Z"}','[{"artifactId": "plan", "name": "Plan", "parts": [{"text": "Day 1. "}, {"raw": "aGVsbG8=", "filename": "t.txt", "mediaType": "text/plain"}, {"data": [1.0, "two", null]}]}]','[{"messageId": "m-1", "contextId": "c-1", "taskId": "1f6b6e0c-27d5-4f4c-9d3e-1f2b3c4d5e01", "role": "ROLE_USER", "parts": [{"text": "A trip"}, {"data": {"nights": 2.0}}]}, {"messageId": "m-2", "role": "ROLE_AGENT", "parts": [{"text": "By train?"}]}, {"messageId": "m-3", "role": "ROLE_USER", "parts": [{"url": "https://example.org/map.png", "filename": "map.png", "mediaType": "image/png"}]}]','1.0','{"ticket": 7.0}');
INSERT INTO "tasks" VALUES('1f6b6e0c-27d5-4f4c-9d3e-1f2b3c4d5e02','c-2','task','bob','2026-03-04 05:06:02.123456','{"state": "TASK_STATE_INPUT_REQUIRED", "message": {"messageId": "m-6", "role": "ROLE_AGENT", "parts": [{"text": "Where to?"}]}, "timestamp": "2026-03-04T05:06:02.123456Z"}','[]','[{"messageId": "m-5", "role": "ROLE_USER", "parts": [{"text": "Another trip"}]}]','1.0','null');
INSERT INTO "tasks" VALUES('1f6b6e0c-27d5-4f4c-9d3e-1f2b3c4d5e03','c-2','task','ann',NULL,'{"state": "TASK_STATE_SUBMITTED"}','[]','[{"messageId": "m-7", "role": "ROLE_USER", "parts": [{"text": "Still waiting"}]}]','1.0','null');
CREATE INDEX idx_tasks_owner_last_updated ON tasks (owner, last_updated);
CREATE INDEX ix_tasks_id ON tasks (id);
CREATE INDEX ix_push_notification_configs_owner ON push_notification_configs (owner);
COMMIT;
