// The pass of memlith-cc and memlith-c++, a plugin of clang 19 (docs/compiler-pass.md): behind each store that may go
// to a region it puts a comparison of the address with the range of all regions, and a call of ../runtime.
//
// The pass runs last, so it sees the stores that are really made: those that the optimiser removed are gone, and those
// that it made (memcpy, vectors) are there. Ordinary stores of a basic block are recorded together, before the next
// instruction by which another thread or a persist could learn of them: a call, an atomic access, a fence, the end of
// the block. Stores of a loop to consecutive bytes are recorded together where the loop is left, if nothing in the loop
// tells of them. What cannot lie in a region (the stack, globals) is left out.
#include <llvm/ADT/MapVector.h>
#include <llvm/ADT/PostOrderIterator.h>
#include <llvm/ADT/SmallPtrSet.h>
#include <llvm/Analysis/LoopInfo.h>
#include <llvm/Analysis/ScalarEvolutionExpressions.h>
#include <llvm/Analysis/ValueTracking.h>
#include <llvm/IR/CFG.h>
#include <llvm/IR/DiagnosticInfo.h>
#include <llvm/IR/Dominators.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/InlineAsm.h>
#include <llvm/IR/InstIterator.h>
#include <llvm/IR/IntrinsicInst.h>
#include <llvm/IR/MDBuilder.h>
#include <llvm/IR/Module.h>
#include <llvm/Passes/PassBuilder.h>
#include <llvm/Passes/PassPlugin.h>
#include <llvm/Support/raw_ostream.h>
#include <llvm/Transforms/Utils/BasicBlockUtils.h>
#include <llvm/Transforms/Utils/LoopUtils.h>
#include <llvm/Transforms/Utils/ScalarEvolutionExpander.h>

#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "memlith/track.h"

namespace {

using namespace llvm;

// Functions of the C library, and of libstdc++.so, that write into memory of their caller. The runtime has a function
// __memlith_wrap_NAME for each, which calls the original and records what that wrote. It is weak: in a program that
// defines NAME itself, __memlith_wrap_NAME is that function.
constexpr StringRef kWrapped[] = {
#define MEMLITH_WRAPPED(name) #name,
#include "../runtime/wrapped.inc"
#undef MEMLITH_WRAPPED
};

enum class Strictness { allow, warn, fail };

StringRef environment(const char* name) {
  const char* const value = std::getenv(name);
  return value != nullptr ? value : "";
}

// Bytes of an object, at constant distances from one address.
struct Interval {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

// Ordinary stores that are recorded in one place.
struct Group {
  Value* base = nullptr;
  SmallVector<Interval, 4> intervals;
  Instruction* before = nullptr;
  DebugLoc where;
};

// Groups of one block of a loop, each iteration of which stores `step` bytes further on.
struct Walk {
  Group all;  // at the distances from the base of the first group
  const SCEV* place = nullptr;
  const SCEV* start = nullptr;  // where the base of the first group was in the first iteration
  std::int64_t step = 0;
  SmallVector<std::size_t, 4> groups;
};

// The stores of a loop, at the place where the loop was left.
struct Walked {
  Value* begin = nullptr;
  Value* bytes = nullptr;
  Instruction* before = nullptr;
  DebugLoc where;
};

constexpr std::size_t kExitsMax = 4;  // of a loop, each of which gets a check

struct Counts {
  unsigned recorded = 0;  // stores, each for itself
  unsigned checks = 0;    // comparisons that were put in
  unsigned skipped = 0;   // stores that go to no region
  unsigned walks = 0;     // checks that were moved out of loops
};

class Tracking {
 public:
  Tracking(Module& module, FunctionAnalysisManager& analyses)
      : module_(module),
        analyses_(analyses),
        layout_(module.getDataLayout()),
        word_(Type::getInt64Ty(module.getContext())),
        pointer_(PointerType::getUnqual(module.getContext())) {
    const StringRef strictness = environment("MEMLITH_TRACK_ASM");
    strictness_ = strictness == "error"   ? Strictness::fail
                  : strictness == "allow" ? Strictness::allow
                                          : Strictness::warn;
  }

  bool run() {
    bool changed = name_own_functions();
    if (module_.getNamedGlobal("memlith_no_track_file") != nullptr ||
        module_.getNamedGlobal("_ZL21memlith_no_track_file"))
      return changed;
    find_untracked();
    changed |= wrap_library();
    for (Function& function : module_) {
      if (function.isDeclaration() || function.hasAvailableExternallyLinkage() ||
          function.hasFnAttribute(Attribute::Naked) || untracked_.contains(&function)) {
        continue;
      }
      changed |= track(function);
    }
    if (environment("MEMLITH_TRACK_STATS") == "1") {
      errs() << "memlith: " << module_.getSourceFileName() << ": " << counts_.recorded << " stores recorded by "
             << counts_.checks << " checks, " << counts_.skipped << " go to no region, " << counts_.walks
             << " checks moved out of loops\n";
    }
    return changed;
  }

 private:
  // Functions with MEMLITH_NO_TRACK.
  void find_untracked() {
    const GlobalVariable* const all = module_.getNamedGlobal("llvm.global.annotations");
    if (all == nullptr || !all->hasInitializer()) return;
    const auto* const entries = dyn_cast<ConstantArray>(all->getInitializer());
    if (entries == nullptr) return;
    for (const Use& entry : entries->operands()) {
      const auto* const fields = dyn_cast<ConstantStruct>(entry.get());
      if (fields == nullptr || fields->getNumOperands() < 2) continue;
      const auto* const function = dyn_cast<Function>(fields->getOperand(0)->stripPointerCasts());
      const auto* const text = dyn_cast<GlobalVariable>(fields->getOperand(1)->stripPointerCasts());
      if (function == nullptr || text == nullptr || !text->hasInitializer()) continue;
      const auto* const word = dyn_cast<ConstantDataSequential>(text->getInitializer());
      if (word != nullptr && word->isCString() && word->getAsCString() == "memlith_no_track")
        untracked_.insert(function);
    }
  }

  // Another file calls __memlith_wrap_NAME. If this file defines NAME, that call is for this function, whose parameters
  // need not be those of the C library's.
  bool name_own_functions() {
    bool changed = false;
    for (const StringRef name : kWrapped) {
      Function* const own = module_.getFunction(name);
      if (own == nullptr || own->isDeclarationForLinker() || own->hasLocalLinkage()) continue;
      const std::string wrapper = ("__memlith_wrap_" + name).str();
      if (module_.getNamedValue(wrapper) != nullptr) continue;
      GlobalAlias::create(own->getValueType(), own->getAddressSpace(), own->getLinkage(), wrapper, own, &module_)
          ->setVisibility(GlobalValue::HiddenVisibility);
      changed = true;
    }
    return changed;
  }

  bool wrap_library() {
    bool changed = false;
    for (const StringRef name : kWrapped) {
      Function* const original = module_.getFunction(name);
      if (original == nullptr || !original->isDeclaration() || original->isIntrinsic()) continue;
      FunctionCallee wrapper =
          module_.getOrInsertFunction(("__memlith_wrap_" + name).str(), original->getFunctionType());
      auto* const function = cast<Function>(wrapper.getCallee());
      function->copyAttributesFrom(original);
      function->setVisibility(GlobalValue::HiddenVisibility);
      function->setDSOLocal(true);
      // Within functions with MEMLITH_NO_TRACK, too: recording what is stored to a region is never wrong.
      original->replaceAllUsesWith(function);
      changed = true;
    }
    return changed;
  }

  // ---- what a function stores ------------------------------------------------------------------------------------

  bool track(Function& function) {
    groups_.clear();
    others_.clear();
    walked_.clear();
    for (BasicBlock& block : function) look_at(block);
    const bool changed = !groups_.empty() || !others_.empty();
    move_out_of_loops(function);
    move_into_successors(function);
    for (Instruction* const each : others_) emit_other(*each);
    for (std::size_t first = 0, end = 0; first < groups_.size(); first = end) {
      while (end < groups_.size() && groups_[end].before == groups_[first].before) ++end;
      emit(ArrayRef(groups_).slice(first, end - first));
    }
    for (const Walked& each : walked_) emit(each);
    return changed;
  }

  void look_at(BasicBlock& block) {
    MapVector<Value*, Group> pending;
    const auto flush = [&](Instruction& before) {
      for (auto& [base, group] : pending) {
        group.before = &before;
        groups_.push_back(std::move(group));
      }
      pending.clear();
    };
    for (Instruction& instruction : block) {
      if (auto* const store = dyn_cast<StoreInst>(&instruction); store != nullptr && store->isSimple()) {
        const TypeSize bytes = layout_.getTypeStoreSize(store->getValueOperand()->getType());
        if (is_elsewhere(store->getPointerOperand())) {
          ++counts_.skipped;
        } else {
          add(pending, store->getPointerOperand(), static_cast<std::int64_t>(bytes.getFixedValue()), instruction);
        }
        continue;
      }
      if (is_plain_copy(instruction)) {
        auto* const copy = cast<MemIntrinsic>(&instruction);
        if (is_elsewhere(copy->getRawDest())) {
          ++counts_.skipped;
        } else if (const auto* const bytes = dyn_cast<ConstantInt>(copy->getLength())) {
          if (!bytes->isZero()) add(pending, copy->getRawDest(), bytes->getSExtValue(), instruction);
        } else {
          others_.push_back(&instruction);
        }
        continue;
      }
      if (!tells_others(instruction)) continue;
      flush(instruction);
      if (stores_otherwise(instruction)) others_.push_back(&instruction);
    }
  }

  static bool is_plain_copy(const Instruction& instruction) {
    const auto* const copy = dyn_cast<MemIntrinsic>(&instruction);
    return copy != nullptr && !copy->isVolatile();
  }

  // An instruction by which another thread, or a persist, may learn of the stores before it.
  static bool tells_others(const Instruction& instruction) {
    if (instruction.isTerminator()) return true;
    if (const auto* const call = dyn_cast<CallBase>(&instruction)) {
      return !(call->onlyReadsMemory() && call->doesNotThrow() && call->hasFnAttr(Attribute::WillReturn)) &&
             !instruction.isDebugOrPseudoInst() && !instruction.isLifetimeStartOrEnd();
    }
    return instruction.isAtomic() || instruction.isVolatile();
  }

  bool stores_otherwise(Instruction& instruction) {
    Value* target = nullptr;
    if (auto* const store = dyn_cast<StoreInst>(&instruction)) target = store->getPointerOperand();
    if (auto* const exchange = dyn_cast<AtomicCmpXchgInst>(&instruction)) target = exchange->getPointerOperand();
    if (auto* const update = dyn_cast<AtomicRMWInst>(&instruction)) target = update->getPointerOperand();
    if (auto* const copy = dyn_cast<AnyMemIntrinsic>(&instruction)) target = copy->getRawDest();
    if (target != nullptr) {
      if (!is_elsewhere(target)) return true;
      ++counts_.skipped;
      return false;
    }
    const auto* const call = dyn_cast<CallBase>(&instruction);
    return call != nullptr && (call->isInlineAsm() || isa<IntrinsicInst>(call));
  }

  // Memory that is in no region: the stack, globals, variables of threads, exceptions in flight.
  static bool is_elsewhere(Value* address) {
    if (address->getType()->getPointerAddressSpace() != 0) return true;
    SmallVector<const Value*, 4> objects;
    getUnderlyingObjects(address, objects);
    return all_of(objects, [](const Value* object) {
      if (isa<AllocaInst>(object) || isa<GlobalVariable>(object) || isa<UndefValue>(object)) return true;
      if (const auto* const argument = dyn_cast<Argument>(object)) return argument->hasByValAttr();
      const auto* const call = dyn_cast<CallBase>(object);
      if (call == nullptr || call->getCalledFunction() == nullptr) return false;
      return call->getIntrinsicID() == Intrinsic::threadlocal_address ||
             call->getCalledFunction()->getName() == "__cxa_allocate_exception";
    });
  }

  void add(MapVector<Value*, Group>& pending, Value* address, std::int64_t bytes, Instruction& instruction) {
    APInt offset(layout_.getIndexTypeSizeInBits(address->getType()), 0);
    Value* const base = address->stripAndAccumulateConstantOffsets(layout_, offset, true);
    Interval added{offset.getSExtValue(), offset.getSExtValue() + bytes};
    Group& group = pending[base];
    group.base = base;
    if (const DebugLoc& where = instruction.getDebugLoc()) group.where = where;
    join(group, added);
    ++counts_.recorded;
  }

  // Joins what overlaps or touches.
  static void join(Group& group, Interval added) {
    for (std::size_t i = 0; i < group.intervals.size();) {
      const Interval& other = group.intervals[i];
      if (other.begin > added.end || added.begin > other.end) {
        ++i;
        continue;
      }
      added = {std::min(added.begin, other.begin), std::max(added.end, other.end)};
      group.intervals.erase(group.intervals.begin() + static_cast<std::ptrdiff_t>(i));
      i = 0;
    }
    group.intervals.push_back(added);
  }

  // ---- what a loop stores ------------------------------------------------------------------------------------------

  void move_out_of_loops(Function& function) {
    if (groups_.empty() || function.hasOptNone()) return;
    LoopInfo& loops = analyses_.getResult<LoopAnalysis>(function);
    if (loops.empty()) return;
    auto& tree = analyses_.getResult<DominatorTreeAnalysis>(function);
    auto& evolution = analyses_.getResult<ScalarEvolutionAnalysis>(function);
    SCEVExpander expander(evolution, layout_, "memlith");
    std::vector<bool> moved(groups_.size(), false);
    for (Loop* const loop : loops.getLoopsInPreorder()) {
      if (!loop->isInnermost() || !tells_nothing(*loop)) continue;
      const auto walks = find_walks(*loop, tree, evolution);
      if (walks.empty() || !has_own_exits(*loop, tree, loops)) continue;
      for (const Walk& walk : walks) {
        if (!walk_out(walk, *loop, expander)) continue;
        for (const std::size_t each : walk.groups) moved[each] = true;
      }
    }
    std::size_t next = 0;
    erase_if(groups_, [&](const Group&) { return moved[next++]; });
  }

  // True if no other code can observe the loop's stores before the loop is left.
  static bool tells_nothing(const Loop& loop) {
    for (const BasicBlock* const block : loop.blocks()) {
      if (!isa<BranchInst>(block->getTerminator()) && !isa<SwitchInst>(block->getTerminator())) return false;
      for (const Instruction& each : *block) {
        if (!each.isTerminator() && !is_plain_copy(each) && tells_others(each)) return false;
      }
    }
    return true;
  }

  // Groups that are stored to in each iteration, at addresses that follow each other without a gap. Where the loop is
  // left, the last value of their base is at hand, because their block dominates every block that leaves the loop.
  std::vector<Walk> find_walks(const Loop& loop, const DominatorTree& tree, ScalarEvolution& evolution) const {
    SmallVector<BasicBlock*, 4> exiting;
    loop.getExitingBlocks(exiting);
    std::vector<Walk> walks;
    for (std::size_t i = 0; i < groups_.size(); ++i) {
      const Group& group = groups_[i];
      BasicBlock* const block = group.before->getParent();
      if (!loop.contains(block) || !all_of(exiting, [&](BasicBlock* each) { return tree.dominates(block, each); }))
        continue;
      add_to_walks(walks, i, loop, evolution);
    }
    erase_if(walks, [](const Walk& walk) {
      const auto& intervals = walk.all.intervals;
      return intervals.size() != 1 || std::abs(walk.step) > intervals.front().end - intervals.front().begin;
    });
    return walks;
  }

  void add_to_walks(std::vector<Walk>& walks, std::size_t number, const Loop& loop, ScalarEvolution& evolution) const {
    const Group& group = groups_[number];
    const SCEV* const place = evolution.getSCEV(group.base);
    for (Walk& walk : walks) {
      if (walk.all.before->getParent() != group.before->getParent()) continue;
      const auto* const distance = dyn_cast<SCEVConstant>(evolution.getMinusSCEV(place, walk.place));
      if (distance == nullptr) continue;
      const std::int64_t offset = distance->getAPInt().getSExtValue();
      for (const Interval& each : group.intervals) join(walk.all, {each.begin + offset, each.end + offset});
      walk.groups.push_back(number);
      return;
    }
    Walk walk{group, place, place, 0, {number}};
    if (!evolution.isLoopInvariant(place, &loop)) {
      const auto* const recurrence = dyn_cast<SCEVAddRecExpr>(place);
      if (recurrence == nullptr || recurrence->getLoop() != &loop || !recurrence->isAffine()) return;
      const auto* const step = dyn_cast<SCEVConstant>(recurrence->getStepRecurrence(evolution));
      if (step == nullptr) return;
      walk.start = recurrence->getStart();
      walk.step = step->getAPInt().getSExtValue();
    }
    walks.push_back(std::move(walk));
  }

  // Each block behind the loop follows on the loop alone.
  static bool has_own_exits(Loop& loop, DominatorTree& tree, LoopInfo& loops) {
    SmallVector<BasicBlock*, 4> exits;
    loop.getUniqueExitBlocks(exits);
    if (exits.empty() || exits.size() > kExitsMax) return false;
    if (!loop.hasDedicatedExits()) formDedicatedExitBlocks(&loop, &tree, &loops, nullptr, false);
    return loop.hasDedicatedExits();
  }

  bool walk_out(const Walk& walk, const Loop& loop, SCEVExpander& expander) {
    SmallVector<BasicBlock*, 4> exits;
    loop.getUniqueExitBlocks(exits);
    const auto can_be_at = [&](BasicBlock* exit) {
      return !exit->isEHPad() && expander.isSafeToExpandAt(walk.start, &*exit->getFirstInsertionPt());
    };
    if (!all_of(exits, can_be_at)) return false;
    const Interval bytes = walk.all.intervals.front();
    for (BasicBlock* const exit : exits) {
      Instruction* const before = &*exit->getFirstInsertionPt();
      IRBuilder<> builder(before);
      set_location(builder, *before, walk.all.where);
      Value* first = expander.expandCodeFor(walk.start, walk.all.base->getType(), before);
      Value* last = walk.all.base;
      if (walk.step < 0) std::swap(first, last);
      Value* const length =
          builder.CreateSub(builder.CreatePtrToInt(last, word_), builder.CreatePtrToInt(first, word_));
      walked_.push_back({at(builder, first, bytes.begin), builder.CreateAdd(length, number(bytes.end - bytes.begin)),
                         before, walk.all.where});
    }
    counts_.walks += static_cast<unsigned>(walk.groups.size());
    return true;
  }

  // ---- what several blocks store -----------------------------------------------------------------------------------

  // A record at the end of a block may as well be made in each of the blocks that follow on it alone, with their
  // stores to the same object: no code observes the stores in between.
  void move_into_successors(Function& function) {
    if (groups_.empty() || function.hasOptNone()) return;
    MapVector<Instruction*, MapVector<Value*, Group>> places;
    for (Group& group : groups_) places[group.before].insert({group.base, std::move(group)});
    groups_.clear();
    for (BasicBlock* const block : ReversePostOrderTraversal<Function*>(&function)) {
      Instruction* const end = block->getTerminator();
      const auto found = places.find(end);
      if (found == places.end() || !(isa<BranchInst>(end) || isa<SwitchInst>(end))) continue;
      const auto follows_alone = [block](const BasicBlock* next) {
        return next != block && next->getUniquePredecessor() == block;
      };
      if (succ_empty(block) || !all_of(successors(block), follows_alone)) continue;
      const MapVector<Value*, Group> moving = std::move(found->second);
      found->second.clear();
      SmallPtrSet<BasicBlock*, 4> seen;
      for (BasicBlock* const next : successors(block)) {
        if (!seen.insert(next).second) continue;
        Instruction* const before = &*find_if(*next, [](const Instruction& each) { return tells_others(each); });
        for (const auto& [base, group] : moving) add_to(places[before], group, *before);
      }
    }
    for (auto& [before, groups] : places) {
      for (auto& [base, group] : groups) groups_.push_back(std::move(group));
    }
  }

  static void add_to(MapVector<Value*, Group>& groups, const Group& group, Instruction& before) {
    const auto [found, is_new] = groups.insert({group.base, group});
    found->second.before = &before;
    if (is_new) return;
    for (const Interval& each : group.intervals) join(found->second, each);
  }

  // ---- what is put in ----------------------------------------------------------------------------------------------

  // Groups that are recorded in one place. Without any region, one comparison is enough for several of them.
  void emit(ArrayRef<Group> groups) {
    Instruction* before = groups.front().before;
    if (groups.size() > 1) {
      IRBuilder<> builder(before);
      set_location(builder, *before, groups.front().where);
      Value* const any = builder.CreateICmpNE(range_end(builder, 1), number(0));
      before = SplitBlockAndInsertIfThen(any, before, false);
      before->setDebugLoc(builder.getCurrentDebugLocation());
    }
    for (const Group& group : groups) emit(group, *before);
  }

  void emit(const Group& group, Instruction& before) {
    IRBuilder<> builder(&before);
    set_location(builder, before, group.where);
    std::int64_t least = group.intervals.front().begin;
    for (const Interval& each : group.intervals) least = std::min(least, each.begin);
    // The bytes belong to one object: all of them lie in a region or none. Within the margin its base tells as well as
    // its first byte, and is at hand.
    if (std::abs(least) <= MEMLITH_TRACK_MARGIN) least = 0;
    ++counts_.checks;
    Value* const place = builder.CreatePtrToInt(at(builder, group.base, least), word_);
    builder.SetInsertPoint(when(builder, builder.CreateICmpULT(place, range_end(builder, 1)), before));
    Value* const above = builder.CreateICmpUGE(place, range_end(builder, 0));
    builder.SetInsertPoint(when(builder, above, *builder.GetInsertPoint()));
    for (const Interval& each : group.intervals) {
      call(builder, "__memlith_store", {at(builder, group.base, each.begin), number(each.end - each.begin)});
    }
  }

  void emit(const Walked& walked) {
    IRBuilder<> builder(walked.before);
    set_location(builder, *walked.before, walked.where);
    Value* const tracked = is_tracked(builder, walked.begin, walked.bytes);
    builder.SetInsertPoint(when(builder, tracked, *walked.before));
    call(builder, "__memlith_store", {walked.begin, walked.bytes});
  }

  void emit_other(Instruction& instruction) {
    IRBuilder<> builder(&instruction);
    set_location(builder, instruction, instruction.getDebugLoc());
    if (auto* const copy = dyn_cast<AnyMemIntrinsic>(&instruction)) {
      ++counts_.recorded;
      return after(instruction, copy->getRawDest(), builder.CreateZExtOrTrunc(copy->getLength(), word_));
    }
    if (auto* const store = dyn_cast<StoreInst>(&instruction)) {
      Value* const bytes = number(size_of(store->getValueOperand()->getType()));
      if (!store->isAtomic()) {
        ++counts_.recorded;
        return after(instruction, store->getPointerOperand(), bytes);
      }
      return around(instruction, store->getPointerOperand(), bytes, nullptr);
    }
    if (auto* const update = dyn_cast<AtomicRMWInst>(&instruction)) {
      return around(instruction, update->getPointerOperand(), number(size_of(update->getType())), nullptr);
    }
    if (auto* const exchange = dyn_cast<AtomicCmpXchgInst>(&instruction)) {
      return around(instruction, exchange->getPointerOperand(),
                    number(size_of(exchange->getNewValOperand()->getType())), exchange);
    }
    auto& call = cast<CallBase>(instruction);
    if (call.isInlineAsm()) return emit_assembly(call);
    emit_intrinsic(cast<IntrinsicInst>(call));
  }

  // Behind an instruction that is no terminator.
  void after(Instruction& instruction, Value* address, Value* bytes) {
    Instruction* const next = instruction.getNextNode();
    IRBuilder<> builder(next);
    set_location(builder, *next, instruction.getDebugLoc());
    builder.SetInsertPoint(when(builder, is_tracked(builder, address), *next));
    call(builder, "__memlith_store", {address, bytes});
  }

  void around(Instruction& instruction, Value* address, Value* bytes, AtomicCmpXchgInst* exchange) {
    ++counts_.recorded;
    IRBuilder<> builder(&instruction);
    set_location(builder, instruction, instruction.getDebugLoc());
    Value* const tracked = is_tracked(builder, address);
    builder.SetInsertPoint(when(builder, tracked, instruction));
    call(builder, "__memlith_atomic_begin", {address, bytes});
    Instruction* const next = instruction.getNextNode();
    builder.SetInsertPoint(next);
    set_location(builder, *next, instruction.getDebugLoc());
    Value* stored = number(1);
    if (exchange != nullptr) stored = builder.CreateZExt(builder.CreateExtractValue(exchange, 1), word_);
    builder.SetInsertPoint(when(builder, tracked, *next));
    call(builder, "__memlith_atomic_end", {address, bytes, stored});
  }

  void emit_assembly(CallBase& assembly) {
    const auto* const code = cast<InlineAsm>(assembly.getCalledOperand());
    unsigned argument = 0;
    bool clobbers = false;
    bool has_input = false;
    for (const InlineAsm::ConstraintInfo& each : code->ParseConstraints()) {
      if (each.Type == InlineAsm::isClobber) {
        clobbers |= is_contained(each.Codes, "{memory}");
        continue;
      }
      if (each.Type == InlineAsm::isLabel || (each.Type == InlineAsm::isOutput && !each.isIndirect)) continue;
      const unsigned index = argument++;
      Value* const operand = assembly.getArgOperand(index);
      if (each.Type != InlineAsm::isOutput) {
        has_input |= !each.isIndirect && !isa<Constant>(operand);
        continue;
      }
      if (is_elsewhere(operand)) continue;
      Type* const type = assembly.getParamElementType(index);
      if (assembly.isTerminator() || type == nullptr) {
        complain(assembly, "inline assembly with labels writes to memory; call memlith_touch() for what it writes");
        continue;
      }
      ++counts_.recorded;
      after(assembly, operand, number(size_of(type)));
    }
    if (clobbers && has_input && !code->getAsmString().empty()) {
      complain(assembly,
               "inline assembly may write to memory that it does not name; call memlith_touch() for what it "
               "writes to a region, or name the memory as an output");
    }
  }

  void emit_intrinsic(IntrinsicInst& intrinsic) {
    if (!intrinsic.mayWriteToMemory() || intrinsic.onlyAccessesInaccessibleMemory()) return;
    const StringRef name = intrinsic.getCalledFunction()->getName();
    IRBuilder<> builder(&intrinsic);
    set_location(builder, intrinsic, intrinsic.getDebugLoc());
    switch (intrinsic.getIntrinsicID()) {
      case Intrinsic::masked_store:
        return masked(intrinsic, intrinsic.getArgOperand(1), intrinsic.getArgOperand(3), intrinsic.getArgOperand(0));
      case Intrinsic::masked_compressstore: return compressed(intrinsic);
      case Intrinsic::masked_scatter: return scattered(intrinsic);
      case Intrinsic::assume:
      case Intrinsic::prefetch:
      case Intrinsic::vastart:
      case Intrinsic::vacopy:
      case Intrinsic::vaend:
      case Intrinsic::stackrestore:
      case Intrinsic::stacksave:
      case Intrinsic::invariant_start:
      case Intrinsic::invariant_end:
      case Intrinsic::lifetime_start:
      case Intrinsic::lifetime_end: return;
      default: break;
    }
    if (name.starts_with("llvm.x86.avx.maskstore") || name.starts_with("llvm.x86.avx2.maskstore")) {
      return masked(intrinsic, intrinsic.getArgOperand(0), signs(builder, intrinsic.getArgOperand(1)),
                    intrinsic.getArgOperand(1));
    }
    if (name == "llvm.x86.sse2.maskmov.dqu") {
      return masked(intrinsic, intrinsic.getArgOperand(2), signs(builder, intrinsic.getArgOperand(1)),
                    intrinsic.getArgOperand(1));
    }
    if (name.starts_with("llvm.x86.avx512.mask.scatter")) return scattered_by_index(intrinsic);
    const bool has_target = any_of(intrinsic.args(), [](const Use& each) {
      return each->getType()->isPtrOrPtrVectorTy() && !is_elsewhere_or_vector(each.get());
    });
    if (has_target) complain(intrinsic, "the pass does not know what " + name + " writes; call memlith_touch() for it");
  }

  static bool is_elsewhere_or_vector(Value* value) { return value->getType()->isPointerTy() && is_elsewhere(value); }

  static Value* signs(IRBuilder<>& builder, Value* vector) {
    return builder.CreateICmpSLT(vector, Constant::getNullValue(vector->getType()));
  }

  // The lanes of the mask, as bits of one word. At most 64 lanes: the widest vectors have as many bytes.
  Value* bits(IRBuilder<>& builder, Value* mask) {
    const unsigned lanes = cast<FixedVectorType>(mask->getType())->getNumElements();
    return builder.CreateZExtOrTrunc(builder.CreateBitCast(mask, builder.getIntNTy(lanes)), word_);
  }

  void masked(IntrinsicInst& intrinsic, Value* address, Value* mask, Value* lanes) {
    if (is_elsewhere(address)) return;
    ++counts_.recorded;
    const auto* const type = cast<FixedVectorType>(lanes->getType());
    Instruction* const next = intrinsic.getNextNode();
    IRBuilder<> builder(next);
    set_location(builder, *next, intrinsic.getDebugLoc());
    Value* const word = bits(builder, mask);
    builder.SetInsertPoint(when(builder, is_tracked(builder, address), *next));
    call(builder, "__memlith_masked", {address, word, number(size_of(type->getElementType()))});
  }

  void compressed(IntrinsicInst& intrinsic) {
    Value* const address = intrinsic.getArgOperand(1);
    if (is_elsewhere(address)) return;
    ++counts_.recorded;
    IRBuilder<> builder(&intrinsic);
    Value* const count = builder.CreateUnaryIntrinsic(Intrinsic::ctpop, bits(builder, intrinsic.getArgOperand(2)));
    const auto* const type = cast<FixedVectorType>(intrinsic.getArgOperand(0)->getType());
    after(intrinsic, address, builder.CreateMul(count, number(size_of(type->getElementType()))));
  }

  void scattered(IntrinsicInst& intrinsic) {
    const auto* const type = cast<FixedVectorType>(intrinsic.getArgOperand(0)->getType());
    for (unsigned lane = 0; lane < type->getNumElements(); ++lane) {
      IRBuilder<> builder(&intrinsic);
      Value* const address = builder.CreateExtractElement(intrinsic.getArgOperand(1), lane);
      Value* const stored = builder.CreateExtractElement(intrinsic.getArgOperand(3), lane);
      after(intrinsic, address, builder.CreateSelect(stored, number(size_of(type->getElementType())), number(0)));
    }
    ++counts_.recorded;
  }

  // (base, mask, indices, values, scale): lanes that only one of the vectors has are left out.
  void scattered_by_index(IntrinsicInst& intrinsic) {
    if (is_elsewhere(intrinsic.getArgOperand(0))) return;
    const auto lanes_of = [&](unsigned argument) {
      return cast<FixedVectorType>(intrinsic.getArgOperand(argument)->getType())->getNumElements();
    };
    const auto* const values = cast<FixedVectorType>(intrinsic.getArgOperand(3)->getType());
    for (unsigned lane = 0; lane < std::min({lanes_of(1), lanes_of(2), lanes_of(3)}); ++lane) {
      IRBuilder<> builder(&intrinsic);
      Value* const index = builder.CreateExtractElement(intrinsic.getArgOperand(2), lane);
      Value* const scale = builder.CreateZExt(intrinsic.getArgOperand(4), word_);
      Value* const distance = builder.CreateMul(builder.CreateSExt(index, word_), scale);
      Value* const address = builder.CreateGEP(builder.getInt8Ty(), intrinsic.getArgOperand(0), distance);
      Value* const stored = builder.CreateExtractElement(intrinsic.getArgOperand(1), lane);
      after(intrinsic, address, builder.CreateSelect(stored, number(size_of(values->getElementType())), number(0)));
    }
    ++counts_.recorded;
  }

  // ---- pieces ------------------------------------------------------------------------------------------------------

  [[nodiscard]] std::int64_t size_of(Type* type) const {
    return static_cast<std::int64_t>(layout_.getTypeStoreSize(type).getFixedValue());
  }
  Value* number(std::int64_t value) const { return ConstantInt::getSigned(word_, value); }
  static Value* at(IRBuilder<>& builder, Value* base, std::int64_t offset) {
    return offset == 0
               ? base
               : builder.CreateGEP(builder.getInt8Ty(), base, builder.getInt64(static_cast<std::uint64_t>(offset)));
  }

  // A call without a location in a function that has them would not pass the verifier.
  static void set_location(IRBuilder<>& builder, Instruction& near, const DebugLoc& where) {
    if (where) {
      builder.SetCurrentDebugLocation(where);
    } else if (near.getDebugLoc()) {
      builder.SetCurrentDebugLocation(near.getDebugLoc());
    } else if (DISubprogram* const program = near.getFunction()->getSubprogram()) {
      builder.SetCurrentDebugLocation(DILocation::get(near.getContext(), 0, 0, program));
    }
  }

  // Where the regions lie: the cell of this module of the program, in the runtime.
  Value* range_end(IRBuilder<>& builder, unsigned index) {
    auto* const type = StructType::get(module_.getContext(), {word_, word_});
    GlobalVariable* cell = module_.getNamedGlobal("__memlith_range");
    if (cell == nullptr) {
      cell = new GlobalVariable(module_, type, false, GlobalValue::ExternalLinkage, nullptr, "__memlith_range");
      cell->setVisibility(GlobalValue::HiddenVisibility);
      cell->setDSOLocal(true);
    }
    LoadInst* const load = builder.CreateLoad(word_, builder.CreateStructGEP(type, cell, index));
    load->setMetadata(LLVMContext::MD_nosanitize, MDNode::get(module_.getContext(), {}));
    return load;
  }

  // Each end for itself: both may be changing (memlith/track.h).
  Value* is_tracked(IRBuilder<>& builder, Value* address) {
    ++counts_.checks;
    Value* const place = builder.CreatePtrToInt(address, word_);
    Value* const below = builder.CreateICmpULT(place, range_end(builder, 1));
    return builder.CreateAnd(below, builder.CreateICmpUGE(place, range_end(builder, 0)));
  }
  // True if some of the bytes are.
  Value* is_tracked(IRBuilder<>& builder, Value* address, Value* bytes) {
    ++counts_.checks;
    Value* const place = builder.CreatePtrToInt(address, word_);
    Value* const below = builder.CreateICmpULT(place, range_end(builder, 1));
    return builder.CreateAnd(below, builder.CreateICmpUGT(builder.CreateAdd(place, bytes), range_end(builder, 0)));
  }

  Instruction* when(IRBuilder<>& builder, Value* condition, Instruction& before) {
    Instruction* const then = SplitBlockAndInsertIfThen(condition, &before, false,
                                                        MDBuilder(module_.getContext()).createUnlikelyBranchWeights());
    then->setDebugLoc(builder.getCurrentDebugLocation());
    return then;
  }

  // Its registers are kept but for those of floating point, so that the path without the call stays as it was.
  void call(IRBuilder<>& builder, StringRef name, ArrayRef<Value*> arguments) {
    SmallVector<Type*, 3> types;
    for (Value* const each : arguments) types.push_back(each->getType());
    FunctionCallee callee = module_.getOrInsertFunction(name, FunctionType::get(builder.getVoidTy(), types, false));
    auto* const function = cast<Function>(callee.getCallee());
    function->setCallingConv(CallingConv::PreserveMost);
    function->setDoesNotThrow();
    function->setVisibility(GlobalValue::HiddenVisibility);
    function->setDSOLocal(true);
    CallInst* const made = builder.CreateCall(callee, arguments);
    made->setCallingConv(CallingConv::PreserveMost);
    made->setDoesNotThrow();
  }

  void complain(const Instruction& where, const Twine& what) {
    if (strictness_ == Strictness::allow) return;
    const std::string text = ("memlith: " + what).str();
    module_.getContext().diagnose(DiagnosticInfoUnsupported(*where.getFunction(), text, where.getDebugLoc(),
                                                            strictness_ == Strictness::fail ? DS_Error : DS_Warning));
  }

  Module& module_;
  FunctionAnalysisManager& analyses_;
  const DataLayout& layout_;
  IntegerType* word_;
  PointerType* pointer_;
  Strictness strictness_ = Strictness::warn;
  SmallPtrSet<const Function*, 8> untracked_;
  std::vector<Group> groups_;
  std::vector<Walked> walked_;
  std::vector<Instruction*> others_;
  Counts counts_;
};

struct TrackPass : PassInfoMixin<TrackPass> {
  PreservedAnalyses run(Module& module, ModuleAnalysisManager& analyses) {
    auto& of_functions = analyses.getResult<FunctionAnalysisManagerModuleProxy>(module).getManager();
    return Tracking(module, of_functions).run() ? PreservedAnalyses::none() : PreservedAnalyses::all();
  }
  static bool isRequired() { return true; }
};

}  // namespace

extern "C" __attribute__((visibility("default"))) PassPluginLibraryInfo llvmGetPassPluginInfo() {
  return {LLVM_PLUGIN_API_VERSION, "memlith-track", "1", [](PassBuilder& builder) {
            builder.registerOptimizerLastEPCallback([](ModulePassManager& passes, OptimizationLevel) {
              passes.addPass(TrackPass());
            });
          }};
}
