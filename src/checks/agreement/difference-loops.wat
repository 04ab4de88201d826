;; Compares two blocks of float64 numbers, for difference-loops.ts. Addresses are bytes, and a block has 4,096 numbers.
;;
;; 0x00000  one
;; 0x08000  other
;; 0x10000  the numbers of the rows (f64)
;; 0x18000  finite differences (f64), in the order of the rows
;; 0x20000  indices of rows that differ by `least` or more, but not by 0 (i32)
;; 0x24000  indices of rows in the sample (i32)
;; 0x28000  how many differences are finite, how many rows differ by more than the tolerance, how many indices there
;;          are of rows that differ, and of the sample (i32 each)
(module
  (memory (export "memory") 3)

  ;; `mixHash` of value-counts.ts.
  (func $mix (param $hash i32) (result i32)
    (local.set $hash
      (i32.mul (i32.xor (local.get $hash) (i32.shr_u (local.get $hash) (i32.const 16))) (i32.const 0x85ebca6b)))
    (local.set $hash
      (i32.mul (i32.xor (local.get $hash) (i32.shr_u (local.get $hash) (i32.const 13))) (i32.const 0xc2b2ae35)))
    (i32.xor (local.get $hash) (i32.shr_u (local.get $hash) (i32.const 16))))

  ;; Numbers `count` rows that follow on each other.
  (func (export "countFrom") (param $first f64) (param $count i32)
    (local $at i32)
    (local.set $at (i32.const 0x10000))
    (block $through
      (loop $next
        (br_if $through (i32.eqz (local.get $count)))
        (f64.store (local.get $at) (local.get $first))
        (local.set $first (f64.add (local.get $first) (f64.const 1)))
        (local.set $at (i32.add (local.get $at) (i32.const 8)))
        (local.set $count (i32.sub (local.get $count) (i32.const 1)))
        (br $next))))

  ;; Compares the first `count` numbers. `mask`: bits that are 0 in the hash of the number of each row in the sample.
  (func (export "compare") (param $count i32) (param $tolerance f64) (param $least f64) (param $mask i32)
    (local $index i32) (local $at i32) (local $x f64) (local $y f64) (local $distance f64) (local $isFinite i32)
    (local $row i64) (local $upper i32)
    (local $finite i32) (local $beyond i32) (local $different i32) (local $sampled i32)
    (block $through
      (loop $next
        (br_if $through (i32.eq (local.get $index) (local.get $count)))
        (local.set $at (i32.shl (local.get $index) (i32.const 3)))
        (local.set $x (f64.load (local.get $at)))
        (local.set $y (f64.load offset=0x8000 (local.get $at)))
        (local.set $distance (f64.abs (f64.sub (local.get $x) (local.get $y))))
        (local.set $isFinite (f64.lt (local.get $distance) (f64.const inf)))
        (if (local.get $isFinite)
          (then
            (f64.store offset=0x18000 (i32.shl (local.get $finite) (i32.const 3)) (local.get $distance))
            (local.set $finite (i32.add (local.get $finite) (i32.const 1)))
            (local.set $row (i64.trunc_f64_u (f64.load offset=0x10000 (local.get $at))))
            (local.set $upper (i32.wrap_i64 (i64.shr_u (local.get $row) (i64.const 32))))
            (local.set $upper
              (if (result i32) (i32.eqz (local.get $upper))
                (then (i32.const 0x9e3779b9))
                (else (call $mix (local.get $upper)))))
            (if (i32.eqz
                (i32.and (local.get $mask) (call $mix (i32.xor (i32.wrap_i64 (local.get $row)) (local.get $upper)))))
              (then
                (i32.store offset=0x24000 (i32.shl (local.get $sampled) (i32.const 2)) (local.get $index))
                (local.set $sampled (i32.add (local.get $sampled) (i32.const 1))))))
          (else
            (local.set $distance
              (select (f64.const 0) (f64.const inf)
                (i32.or
                  (f64.eq (local.get $x) (local.get $y))
                  (i32.and
                    (f64.ne (local.get $x) (local.get $x))
                    (f64.ne (local.get $y) (local.get $y))))))))
        (local.set $beyond (i32.add (local.get $beyond) (f64.gt (local.get $distance) (local.get $tolerance))))
        (if (i32.and
            (f64.gt (local.get $distance) (f64.const 0))
            (f64.ge (local.get $distance) (local.get $least)))
          (then
            (i32.store offset=0x20000 (i32.shl (local.get $different) (i32.const 2)) (local.get $index))
            (local.set $different (i32.add (local.get $different) (i32.const 1)))))
        (local.set $index (i32.add (local.get $index) (i32.const 1)))
        (br $next)))
    (i32.store (i32.const 0x28000) (local.get $finite))
    (i32.store (i32.const 0x28004) (local.get $beyond))
    (i32.store (i32.const 0x28008) (local.get $different))
    (i32.store (i32.const 0x2800c) (local.get $sampled))))
