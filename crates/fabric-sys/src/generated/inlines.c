#include "libfabric.h"

// Static wrappers

int fi_close_of_haul(struct fid *fid) { return fi_close(fid); }
int fi_eq_open_of_haul(struct fid_fabric *fabric, struct fi_eq_attr *attr, struct fid_eq **eq, void *context) { return fi_eq_open(fabric, attr, eq, context); }
ssize_t fi_eq_read_of_haul(struct fid_eq *eq, uint32_t *event, void *buf, size_t len, uint64_t flags) { return fi_eq_read(eq, event, buf, len, flags); }
ssize_t fi_eq_readerr_of_haul(struct fid_eq *eq, struct fi_eq_err_entry *buf, uint64_t flags) { return fi_eq_readerr(eq, buf, flags); }
ssize_t fi_eq_sread_of_haul(struct fid_eq *eq, uint32_t *event, void *buf, size_t len, int timeout, uint64_t flags) { return fi_eq_sread(eq, event, buf, len, timeout, flags); }
ssize_t fi_cq_read_of_haul(struct fid_cq *cq, void *buf, size_t count) { return fi_cq_read(cq, buf, count); }
ssize_t fi_cq_readerr_of_haul(struct fid_cq *cq, struct fi_cq_err_entry *buf, uint64_t flags) { return fi_cq_readerr(cq, buf, flags); }
ssize_t fi_cq_sread_of_haul(struct fid_cq *cq, void *buf, size_t count, const void *cond, int timeout) { return fi_cq_sread(cq, buf, count, cond, timeout); }
const char * fi_cq_strerror_of_haul(struct fid_cq *cq, int prov_errno, const void *err_data, char *buf, size_t len) { return fi_cq_strerror(cq, prov_errno, err_data, buf, len); }
int fi_domain_of_haul(struct fid_fabric *fabric, struct fi_info *info, struct fid_domain **domain, void *context) { return fi_domain(fabric, info, domain, context); }
int fi_cq_open_of_haul(struct fid_domain *domain, struct fi_cq_attr *attr, struct fid_cq **cq, void *context) { return fi_cq_open(domain, attr, cq, context); }
int fi_mr_reg_of_haul(struct fid_domain *domain, const void *buf, size_t len, uint64_t acs, uint64_t offset, uint64_t requested_key, uint64_t flags, struct fid_mr **mr, void *context) { return fi_mr_reg(domain, buf, len, acs, offset, requested_key, flags, mr, context); }
void * fi_mr_desc_of_haul(struct fid_mr *mr) { return fi_mr_desc(mr); }
uint64_t fi_mr_key_of_haul(struct fid_mr *mr) { return fi_mr_key(mr); }
int fi_av_open_of_haul(struct fid_domain *domain, struct fi_av_attr *attr, struct fid_av **av, void *context) { return fi_av_open(domain, attr, av, context); }
int fi_av_insert_of_haul(struct fid_av *av, const void *addr, size_t count, fi_addr_t *fi_addr, uint64_t flags, void *context) { return fi_av_insert(av, addr, count, fi_addr, flags, context); }
int fi_passive_ep_of_haul(struct fid_fabric *fabric, struct fi_info *info, struct fid_pep **pep, void *context) { return fi_passive_ep(fabric, info, pep, context); }
int fi_endpoint_of_haul(struct fid_domain *domain, struct fi_info *info, struct fid_ep **ep, void *context) { return fi_endpoint(domain, info, ep, context); }
int fi_ep_bind_of_haul(struct fid_ep *ep, struct fid *bfid, uint64_t flags) { return fi_ep_bind(ep, bfid, flags); }
int fi_pep_bind_of_haul(struct fid_pep *pep, struct fid *bfid, uint64_t flags) { return fi_pep_bind(pep, bfid, flags); }
int fi_enable_of_haul(struct fid_ep *ep) { return fi_enable(ep); }
ssize_t fi_recv_of_haul(struct fid_ep *ep, void *buf, size_t len, void *desc, fi_addr_t src_addr, void *context) { return fi_recv(ep, buf, len, desc, src_addr, context); }
ssize_t fi_send_of_haul(struct fid_ep *ep, const void *buf, size_t len, void *desc, fi_addr_t dest_addr, void *context) { return fi_send(ep, buf, len, desc, dest_addr, context); }
ssize_t fi_inject_of_haul(struct fid_ep *ep, const void *buf, size_t len, fi_addr_t dest_addr) { return fi_inject(ep, buf, len, dest_addr); }
int fi_getname_of_haul(fid_t fid, void *addr, size_t *addrlen) { return fi_getname(fid, addr, addrlen); }
int fi_listen_of_haul(struct fid_pep *pep) { return fi_listen(pep); }
int fi_connect_of_haul(struct fid_ep *ep, const void *addr, const void *param, size_t paramlen) { return fi_connect(ep, addr, param, paramlen); }
int fi_accept_of_haul(struct fid_ep *ep, const void *param, size_t paramlen) { return fi_accept(ep, param, paramlen); }
int fi_reject_of_haul(struct fid_pep *pep, fid_t handle, const void *param, size_t paramlen) { return fi_reject(pep, handle, param, paramlen); }
int fi_shutdown_of_haul(struct fid_ep *ep, uint64_t flags) { return fi_shutdown(ep, flags); }
ssize_t fi_read_of_haul(struct fid_ep *ep, void *buf, size_t len, void *desc, fi_addr_t src_addr, uint64_t addr, uint64_t key, void *context) { return fi_read(ep, buf, len, desc, src_addr, addr, key, context); }
ssize_t fi_write_of_haul(struct fid_ep *ep, const void *buf, size_t len, void *desc, fi_addr_t dest_addr, uint64_t addr, uint64_t key, void *context) { return fi_write(ep, buf, len, desc, dest_addr, addr, key, context); }
