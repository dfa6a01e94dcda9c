-- The audit log is never changed. A sweep that has noted its cutoff may remove what is older. The table has the same name in the list of
-- sweeps on every database: it is written in two parts, as names of tables are rewritten for SQLite.
CREATE TRIGGER cn_admin.audit_logs_no_update BEFORE UPDATE ON cn_admin.audit_logs
BEGIN
    SELECT RAISE(ABORT, 'the audit log is append-only');
END;
CREATE TRIGGER cn_admin.audit_logs_no_delete BEFORE DELETE ON cn_admin.audit_logs
WHEN NOT EXISTS (SELECT 1 FROM cn_admin.retention_runs WHERE table_name = 'cn_admin' || '.audit_logs' AND cutoff > OLD.created_at)
BEGIN
    SELECT RAISE(ABORT, 'the audit log is append-only');
END;
