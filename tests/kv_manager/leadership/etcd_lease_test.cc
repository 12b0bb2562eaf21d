// SPDX-License-Identifier: Apache-2.0

// The lease in etcd, against a server in this process that answers like etcd.
#include "kv_manager/leadership/etcd_lease.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/mutex.h"
#include "etcd/lease.grpc.pb.h"
#include "grpcpp/grpcpp.h"

namespace quire {
namespace {

using ::testing::HasSubstr;

constexpr absl::Duration kTimeout = absl::Seconds(20);

// Keys and leases of etcd. Leases end when the test says so.
class FakeEtcd {
 public:
  FakeEtcd() : address_(absl::StrCat("unix:", ::testing::TempDir(), "/fake_etcd.", getpid())) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort(address_, grpc::InsecureServerCredentials());
    builder.RegisterService(&keys_service_);
    builder.RegisterService(&leases_service_);
    server_ = builder.BuildAndStart();
  }

  const std::string& address() const { return address_; }
  int num_leases() const {
    const MutexLock lock(&mutex_);
    return static_cast<int>(leases_.size());
  }
  std::string Value(const std::string& key) const {
    const MutexLock lock(&mutex_);
    return keys_.contains(key) ? keys_.at(key).value() : "";
  }
  void EndLeases() {
    const MutexLock lock(&mutex_);
    while (!leases_.empty()) EndLease(leases_.begin()->first);
  }
  void Delete(const std::string& key) {
    const MutexLock lock(&mutex_);
    ++revision_;
    keys_.erase(key);
  }
  // The next read fails.
  void FailNextRange(const grpc::Status& status) {
    const MutexLock lock(&mutex_);
    range_status_ = status;
  }
  // The next transaction is done, but its answer is lost.
  void LoseNextTxn() {
    const MutexLock lock(&mutex_);
    loses_txn_ = true;
  }

 private:
  void EndLease(int64_t id) QUIRE_REQUIRES(mutex_) {
    leases_.erase(id);
    ++revision_;
    std::erase_if(keys_, [id](const auto& key) { return key.second.lease() == id; });
  }

  grpc::Status Range(const etcdserverpb::RangeRequest& request, etcdserverpb::RangeResponse* response) {
    const MutexLock lock(&mutex_);
    if (!range_status_.ok()) return std::exchange(range_status_, grpc::Status::OK);
    response->mutable_header()->set_revision(revision_);
    if (keys_.contains(request.key())) *response->add_kvs() = keys_.at(request.key());
    return grpc::Status::OK;
  }

  grpc::Status Txn(const etcdserverpb::TxnRequest& request, etcdserverpb::TxnResponse* response) {
    const MutexLock lock(&mutex_);
    const etcdserverpb::Compare& compare = request.compare(0);
    EXPECT_EQ(compare.target(), etcdserverpb::Compare::CREATE);
    const int64_t created = keys_.contains(compare.key()) ? keys_.at(compare.key()).create_revision() : 0;
    if (created == compare.create_revision()) {
      const etcdserverpb::PutRequest& put = request.success(0).request_put();
      if (!leases_.contains(put.lease())) return {grpc::StatusCode::NOT_FOUND, "requested lease not found"};
      ++revision_;
      etcdserverpb::KeyValue& key = keys_[put.key()];
      key.set_key(put.key());
      key.set_value(put.value());
      key.set_lease(put.lease());
      key.set_create_revision(revision_);
      response->set_succeeded(true);
    }
    response->mutable_header()->set_revision(revision_);
    if (!std::exchange(loses_txn_, false)) return grpc::Status::OK;
    return {grpc::StatusCode::UNAVAILABLE, "the connection was lost"};
  }

  grpc::Status Grant(const etcdserverpb::LeaseGrantRequest& request, etcdserverpb::LeaseGrantResponse* response) {
    const MutexLock lock(&mutex_);
    leases_[++last_lease_] = request.ttl();
    response->set_id(last_lease_);
    response->set_ttl(request.ttl());
    return grpc::Status::OK;
  }

  grpc::Status Revoke(const etcdserverpb::LeaseRevokeRequest& request) {
    const MutexLock lock(&mutex_);
    EndLease(request.id());
    return grpc::Status::OK;
  }

  int64_t Ttl(int64_t lease) const {
    const MutexLock lock(&mutex_);
    return leases_.contains(lease) ? leases_.at(lease) : 0;
  }

  class KeysService : public etcdserverpb::KV::Service {
   public:
    explicit KeysService(FakeEtcd* etcd) : etcd_(etcd) {}
    grpc::Status Range(grpc::ServerContext* /*context*/, const etcdserverpb::RangeRequest* request,
                       etcdserverpb::RangeResponse* response) override {
      return etcd_->Range(*request, response);
    }
    grpc::Status Txn(grpc::ServerContext* /*context*/, const etcdserverpb::TxnRequest* request,
                     etcdserverpb::TxnResponse* response) override {
      return etcd_->Txn(*request, response);
    }

   private:
    FakeEtcd* const etcd_;
  };

  class LeasesService : public etcdserverpb::Lease::Service {
   public:
    using Stream = grpc::ServerReaderWriter<etcdserverpb::LeaseKeepAliveResponse, etcdserverpb::LeaseKeepAliveRequest>;

    explicit LeasesService(FakeEtcd* etcd) : etcd_(etcd) {}
    grpc::Status LeaseGrant(grpc::ServerContext* /*context*/, const etcdserverpb::LeaseGrantRequest* request,
                            etcdserverpb::LeaseGrantResponse* response) override {
      return etcd_->Grant(*request, response);
    }
    grpc::Status LeaseRevoke(grpc::ServerContext* /*context*/, const etcdserverpb::LeaseRevokeRequest* request,
                             etcdserverpb::LeaseRevokeResponse* /*response*/) override {
      return etcd_->Revoke(*request);
    }
    grpc::Status LeaseKeepAlive(grpc::ServerContext* /*context*/, Stream* stream) override {
      etcdserverpb::LeaseKeepAliveRequest request;
      while (stream->Read(&request)) {
        etcdserverpb::LeaseKeepAliveResponse response;
        response.set_id(request.id());
        response.set_ttl(etcd_->Ttl(request.id()));
        stream->Write(response);
      }
      return grpc::Status::OK;
    }

   private:
    FakeEtcd* const etcd_;
  };

  const std::string address_;
  mutable Mutex mutex_;
  int64_t revision_ QUIRE_GUARDED_BY(mutex_) = 40;
  int64_t last_lease_ QUIRE_GUARDED_BY(mutex_) = 0;
  std::map<int64_t, int64_t> leases_ QUIRE_GUARDED_BY(mutex_);  // The durations, by id.
  std::map<std::string, etcdserverpb::KeyValue> keys_ QUIRE_GUARDED_BY(mutex_);
  bool loses_txn_ QUIRE_GUARDED_BY(mutex_) = false;
  grpc::Status range_status_ QUIRE_GUARDED_BY(mutex_);
  KeysService keys_service_{this};
  LeasesService leases_service_{this};
  std::unique_ptr<grpc::Server> server_;
};

class EtcdLeaseTest : public ::testing::Test {
 protected:
  EtcdLease Candidate(const std::string& name, const std::string& first_member = "") {
    std::vector<std::string> endpoints = {etcd_.address()};
    if (!first_member.empty()) endpoints.insert(endpoints.begin(), first_member);
    return EtcdLease({.endpoints = endpoints,
                      .credentials = grpc::InsecureChannelCredentials(),
                      .key = "leader",
                      .candidate = name,
                      .duration = absl::Seconds(4)});
  }

  FakeEtcd etcd_;
};

TEST_F(EtcdLeaseTest, TheFirstCandidateGetsTheKeyAndTheSecondReadsItsAddress) {
  EtcdLease first = Candidate("a:1_x"), second = Candidate("b:1_y");
  const absl::StatusOr<LeaseHolder> holder = first.TryAcquire(kTimeout);
  ASSERT_TRUE(holder.ok()) << holder.status();
  EXPECT_TRUE(holder->is_me);
  EXPECT_EQ(holder->term, 41u);
  EXPECT_EQ(etcd_.Value("leader"), "a:1_x");
  const absl::StatusOr<LeaseHolder> seen = second.TryAcquire(kTimeout);
  ASSERT_TRUE(seen.ok()) << seen.status();
  EXPECT_FALSE(seen->is_me);
  EXPECT_EQ(seen->address, "a:1");
  EXPECT_EQ(first.Renew(kTimeout), absl::OkStatus());
}

TEST_F(EtcdLeaseTest, TheNextLeaderHasAGreaterTermAndTheOneBeforeCannotRenew) {
  EtcdLease first = Candidate("a:1_x"), second = Candidate("b:1_y");
  const uint64_t first_term = first.TryAcquire(kTimeout)->term;
  etcd_.EndLeases();
  const absl::StatusOr<LeaseHolder> holder = second.TryAcquire(kTimeout);
  ASSERT_TRUE(holder.ok()) << holder.status();
  EXPECT_TRUE(holder->is_me);
  EXPECT_GT(holder->term, first_term);
  EXPECT_EQ(first.Renew(kTimeout).code(), absl::StatusCode::kAborted);
  EXPECT_FALSE(first.TryAcquire(kTimeout)->is_me);
}

TEST_F(EtcdLeaseTest, AnOrderlyEndFreesTheKeyAtOnce) {
  EtcdLease first = Candidate("a:1_x"), second = Candidate("b:1_y");
  ASSERT_TRUE(first.TryAcquire(kTimeout)->is_me);
  EXPECT_EQ(first.Release(kTimeout), absl::OkStatus());
  EXPECT_EQ(etcd_.num_leases(), 0);
  EXPECT_TRUE(second.TryAcquire(kTimeout)->is_me);
}

TEST_F(EtcdLeaseTest, AnOperatorWhoDeletesTheKeyEndsTheTerm) {
  EtcdLease first = Candidate("a:1_x");
  ASSERT_TRUE(first.TryAcquire(kTimeout)->is_me);
  etcd_.Delete("leader");
  const absl::Status renewed = first.Renew(kTimeout);
  EXPECT_EQ(renewed.code(), absl::StatusCode::kAborted);
  EXPECT_THAT(std::string(renewed.message()), HasSubstr("the key leader in etcd is not this manager's any more"));
}

TEST_F(EtcdLeaseTest, ACandidateWhoseAnswerWasLostFindsThatItHoldsTheKey) {
  EtcdLease first = Candidate("a:1_x"), second = Candidate("b:1_y");
  etcd_.LoseNextTxn();
  EXPECT_EQ(first.TryAcquire(kTimeout).status().message(), "etcd, Txn: the connection was lost");
  EXPECT_FALSE(second.TryAcquire(kTimeout)->is_me);
  const absl::StatusOr<LeaseHolder> holder = first.TryAcquire(kTimeout);
  ASSERT_TRUE(holder.ok()) << holder.status();
  EXPECT_TRUE(holder->is_me);
  EXPECT_EQ(holder->term, 41u);
  EXPECT_EQ(first.Renew(kTimeout), absl::OkStatus());
}

TEST_F(EtcdLeaseTest, AKeyThatWasTakenWithoutAnAnswerIsGivenBack) {
  EtcdLease first = Candidate("a:1_x"), second = Candidate("b:1_y");
  EXPECT_EQ(second.Release(kTimeout), absl::OkStatus()) << "it holds nothing";
  etcd_.LoseNextTxn();
  EXPECT_FALSE(first.TryAcquire(kTimeout).ok());
  EXPECT_EQ(first.Release(kTimeout), absl::OkStatus());
  EXPECT_TRUE(second.TryAcquire(kTimeout)->is_me);
}

// gRPC and proxies use this code for errors that pass.
TEST_F(EtcdLeaseTest, AStatusAbortedOfTheConnectionDoesNotEndTheTerm) {
  EtcdLease first = Candidate("a:1_x");
  ASSERT_TRUE(first.TryAcquire(kTimeout)->is_me);
  etcd_.FailNextRange({grpc::StatusCode::ABORTED, "the proxy is restarted"});
  const absl::Status renewed = first.Renew(kTimeout);
  EXPECT_EQ(renewed.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(renewed.message(), "etcd, Range: the proxy is restarted");
  EXPECT_EQ(first.Renew(kTimeout), absl::OkStatus());
}

TEST_F(EtcdLeaseTest, ACandidateThatStandsByForLongGetsANewLease) {
  EtcdLease first = Candidate("a:1_x"), second = Candidate("b:1_y");
  ASSERT_TRUE(first.TryAcquire(kTimeout)->is_me);
  ASSERT_TRUE(first.Release(kTimeout).ok());
  etcd_.LoseNextTxn();
  EXPECT_FALSE(second.TryAcquire(kTimeout).ok());
  etcd_.EndLeases();
  const absl::StatusOr<LeaseHolder> holder = second.TryAcquire(kTimeout);
  ASSERT_TRUE(holder.ok()) << holder.status();
  EXPECT_TRUE(holder->is_me);
}

TEST_F(EtcdLeaseTest, AMemberThatDoesNotAnswerCostsOneCall) {
  EtcdLease first = Candidate("a:1_x", absl::StrCat("unix:", ::testing::TempDir(), "/nobody"));
  const absl::Time start = absl::Now();
  EXPECT_FALSE(first.TryAcquire(absl::Milliseconds(50)).ok());
  EXPECT_GE(absl::Now() - start, absl::Milliseconds(49));
  EXPECT_TRUE(first.TryAcquire(kTimeout)->is_me);
}

}  // namespace
}  // namespace quire
