-- The audit log is never changed. A sweep that has noted its cutoff may remove what is older.
CREATE FUNCTION cn_admin.refuse_audit_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' AND EXISTS (SELECT 1 FROM cn_admin.retention_runs WHERE table_name = 'cn_admin.audit_logs' AND cutoff > OLD.created_at) THEN
        RETURN OLD;
    END IF;
    RAISE EXCEPTION 'the audit log is append-only';
END $$;
CREATE TRIGGER audit_logs_append_only BEFORE UPDATE OR DELETE ON cn_admin.audit_logs
    FOR EACH ROW EXECUTE FUNCTION cn_admin.refuse_audit_change();
